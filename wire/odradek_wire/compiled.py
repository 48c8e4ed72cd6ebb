"""Write and compile the codec of one message in one version, as straight Python source.

The compiled source is fast, and short enough to compile in a millisecond or two:

- One `struct` call reads or writes neighbouring fields of fixed size, together with the string before them (decoding)
  or the string or arrays of integers among them (encoding). A table keeps one `struct` for each length that was seen.
- A decoder first assumes the usual case: a nullable array of structs has no elements, a varint has one byte. It reads
  again if that was wrong. Every valid message has enough bytes left for the first attempt.
- Structs are filled without their constructor, and arrays of structs are loops: no function call per element.
- `struct` and indexing detect the end of the data. Nothing is allocated by a count before its elements are read.
- `interpreter` does everything rare: tagged fields, unknown tags and errors, for which it finds the field and the byte.

The compiled codec and `interpreter` must accept and reject the same messages: an error that only the compiled codec
finds is our bug.
"""

from collections.abc import Callable
from struct import error as PackingError
from typing import Any

from odradek_wire.message import Message
from odradek_wire.notation import MessageType, StructType

TABLE_LIMIT = 256
"""The number of lengths that one table keeps; a `struct` for another length is made at each use."""


class CodecSource:
    """The source of one codec under construction: its lines, and the values of the names in them."""

    def __init__(self, message: MessageType, cls: type[Message], version: int) -> None:
        self.message = message
        self.cls = cls
        self.version = version
        self.flexible = message.flexible(version)
        self.lines: list[str] = []
        self.indent = "  "
        self.names: dict[str, Any] = {"E": (PackingError, IndexError, ValueError, TypeError, AttributeError)}
        self.count = 0

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def fresh_name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, letter: str, value: Any) -> str:
        name = self.fresh_name(letter)
        self.names[name] = value
        return name

    def struct_class(self, struct: StructType) -> type:
        return self.cls if struct is self.message.root else getattr(self.cls, struct.name)

    def function(self, name: str, text: str) -> Callable[..., Any]:
        code = compile(text, f"<{name} {self.message.name} v{self.version}>", "exec")
        exec(code, self.names)
        return self.names[name]  # type: ignore[no-any-return]
