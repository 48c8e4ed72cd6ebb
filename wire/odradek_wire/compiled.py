"""Writes and compiles the codec of one message in one version, as straight Python source.

What makes it fast, and keeps it short enough to compile in a millisecond or two:

- neighbouring fields of fixed size are one `struct` call, together with the string before them (decoding) or the string
  or the arrays of integers among them (encoding): a table holds one `struct` per length that was seen;
- a decoder reads on over what is usually absent or short (a nullable array of structs, the rest of a varint), and once
  more only where it is there: the bytes taken for what follows exist in every message that is whole;
- structs are filled without their constructor; arrays of structs are loops in place, no function is called per element;
- reading past the end is noticed by `struct` or by indexing; a count promises nothing, elements are made as they come;
- `interpreter` does what is rare (tagged fields, unknown tags, every error): it finds the field and the byte.

Both must accept and refuse the same: an error that `interpreter` does not find again is a mistake of ours.
"""

from collections.abc import Callable
from struct import error as PackingError
from typing import Any

from odradek_wire.message import Message
from odradek_wire.notation import MessageType, StructType

TABLE_LIMIT = 256
"""Lengths remembered in one table; others are made anew each time."""


class CodecSource:
    """Lines of source under construction, and the names they refer to."""

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
