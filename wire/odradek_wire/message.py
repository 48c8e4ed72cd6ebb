"""What every generated class has: slots, equality, a readable repr, and the place for unknown tagged fields.

Generated classes live in `odradek_wire.messages`, one module per definition; their bytes are the codec's business.
"""

from typing import Any, ClassVar, Protocol, TypeAlias


class FileRecords(Protocol):
    """Records that lie in a file: the encoder passes them on untouched, only their length is asked for."""

    def __len__(self) -> int: ...

    def tobytes(self) -> bytes: ...


Records: TypeAlias = bytes | memoryview | FileRecords
"""Record batches or a message set, opaque here. Decoding gives a memoryview into the frame."""

EMPTY: list[Any] = []
"""Default argument of array fields, never stored: each instance gets a list of its own."""

FRESH: Any = object()
"""Default argument of struct fields, never stored: each instance gets a new struct with that struct's defaults."""


class Struct:
    """A struct of the protocol; equal to another of its class when all fields are.

    A slot is named as its field, with an underscore before it where a property makes the default late.
    """

    __slots__ = ("unknown_tags",)

    unknown_tags: tuple[tuple[int, bytes], ...]
    """Tagged fields that this release does not know, by ascending tag: kept, and written again."""

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for slot in self.__slots__:
            name = slot.lstrip("_")
            if getattr(self, name) != getattr(other, name):
                return False
        return bool(self.unknown_tags == other.unknown_tags)

    def __repr__(self) -> str:
        names = [slot.lstrip("_") for slot in self.__slots__]
        fields = [f"{name}={getattr(self, name)!r}" for name in names]
        if self.unknown_tags:
            fields.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(fields)})"


class Message(Struct):
    """A struct that stands alone: request, response, header, record, coordinator key or value, other data."""

    __slots__ = ()

    DEFINITION: ClassVar[str]
    """The file in `definitions/` that describes it, without suffix."""
    API_KEY: ClassVar[int]
    """Of requests and responses: the API; of metadata and coordinator records: the type; otherwise -1."""
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    """First version with compact lengths and tagged fields; above MAX_VERSION if there is none."""
