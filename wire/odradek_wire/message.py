"""The base classes of all generated messages: slots, equality, repr, and unknown tagged fields.

`odradek_wire.messages` has the generated classes, one module for each definition. `codec` encodes and decodes them.
"""

from typing import Any, ClassVar, Protocol, TypeAlias


class FileRecords(Protocol):
    """Records in a file: the encoder takes their length and passes them on unread."""

    def __len__(self) -> int: ...

    def tobytes(self) -> bytes: ...


Records: TypeAlias = bytes | memoryview | FileRecords
"""Record batches or a message set, which the codec does not inspect. A decoder returns a memoryview into the frame."""

EMPTY: list[Any] = []
"""The default argument of array fields. Never stored: each instance gets its own list."""

FRESH: Any = object()
"""The default argument of struct fields. Never stored: each instance gets a new struct with default values."""


class Struct:
    """A struct of the protocol, equal to another of its class if all fields are equal.

    A slot has the name of its field, with an underscore before it if a property creates the default at first use.
    """

    __slots__ = ("unknown_tags",)

    unknown_tags: tuple[tuple[int, bytes], ...]
    """Tagged fields that the definition lacks, by ascending tag: encoding writes them back."""

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
    """A struct that is encoded on its own: a request, response, header, record, coordinator key or value, or other
    data."""

    __slots__ = ()

    DEFINITION: ClassVar[str]
    """The name of its file in `definitions/`, without suffix."""
    API_KEY: ClassVar[int]
    """The API of a request or response; the type of a metadata or coordinator record; otherwise -1."""
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    """The first version with compact lengths and tagged fields; above MAX_VERSION if there is none."""
