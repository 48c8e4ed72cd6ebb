"""Compile the encoder of one message in one version; see `compiled`."""

from collections.abc import Callable
from struct import Struct as Packing
from typing import Any

from odradek_wire.compiled import TABLE_LIMIT, CodecSource
from odradek_wire.interpreter import MAX_STRING, Writer, varint
from odradek_wire.message import Message
from odradek_wire.notation import FIXED, Field, MessageType, StructType


def compile_encoder(message: MessageType, cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    """Return ``encode(message) -> parts``."""
    source = EncoderSource(message, cls, version)
    return source.function("encode", source.text())


class _PackTable(dict[Any, Callable[..., bytes]]):
    """A table from a length, or a tuple of lengths, to the pack function of the fields around strings or arrays of
    those lengths.

    `parts` are format strings and, for each length, a pair: the format of the length itself ("" for a varint) and of
    the elements after it ("" for none).
    """

    def __init__(self, parts: list[str | tuple[str, str]]) -> None:
        self.parts = parts

    def __missing__(self, key: Any) -> Callable[..., bytes]:
        lengths = iter(key if isinstance(key, tuple) else (key,))
        code = ">"
        argument = 0
        wide = []
        for part in self.parts:
            if isinstance(part, str):
                code += part
                argument += _arguments(part)
                continue
            own, elements = part
            length = next(lengths)
            if elements == "s" and length > MAX_STRING:
                raise ValueError(length)
            if own:
                code += own
            elif length < 127:
                code += "B"
            else:
                wide.append(argument)
                code += f"{len(varint(length + 1))}s"
            argument += 1
            if elements:
                code += f"{max(length, 0)}{elements}"
                argument += 1 if elements == "s" else max(length, 0)
        pack = Packing(code).pack
        if wide:
            pack = _with_varints(pack, wide)
        if len(self) < TABLE_LIMIT:
            self[key] = pack
        return pack


def _arguments(code: str) -> int:
    return len(code.replace("16s", "s").replace("x", ""))


def _with_varints(pack: Callable[..., bytes], at: list[int]) -> Callable[..., bytes]:
    """Convert lengths that need more than one byte to varints first."""

    def packed(*arguments: Any) -> bytes:
        values = list(arguments)
        for i in at:
            values[i] = varint(values[i])
        return pack(*values)

    return packed


_ONE_BYTE = [bytes((value,)) for value in range(128)]
_two_bytes = Packing("BB").pack
_three_bytes = Packing("BBB").pack


def _varint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE[value]
    if value < 16384:
        return _two_bytes(value & 127 | 128, value >> 7)
    if value < 2097152:
        return _three_bytes(value & 127 | 128, value >> 7 & 127 | 128, value >> 14)
    return varint(value)


class EncoderSource(CodecSource):
    """The source of an encoder, in which `out` is the list of parts.

    One call packs fixed fields and either one string or any number of arrays of integers.
    """

    def __init__(self, message: MessageType, cls: type[Message], version: int) -> None:
        super().__init__(message, cls, version)
        self.parts: list[str | tuple[str, str]] = []
        self.arguments: list[str] = []
        self.lengths: list[str] = []
        self.has_string = False
        self.names |= {"varint": _varint, "explain": self.explain, "slowly": self.slowly, "tags": self.tags}

    def explain(self, value: Any, error: Exception) -> Exception:
        """Raise the error with its field, which the compiled code does not know."""
        Writer(self.message, self.version).encode(value)
        return AssertionError(
            f"{self.message.name} v{self.version}: the interpreter accepts what the compiled codec rejects: {error!r}"
        )

    def slowly(self, struct: StructType, value: Any) -> list[Any]:
        return Writer(self.message, self.version).encode_struct(struct, value)

    def tags(self, struct: StructType, value: Any) -> list[Any]:
        return Writer(self.message, self.version).encode_tags(struct, value)

    def text(self) -> str:
        self.indent = "    "
        self.struct(self.message.root, "o", "return slowly({struct}, o)")
        self.flush()
        return "\n".join(
            [
                "def encode(o):",
                "  try:",
                "    out = []",
                "    append = out.append",
                *self.lines,
                "    return out",
                "  except E as e: error = e",
                "  raise explain(o, error)",
            ]
        )

    def struct(self, struct: StructType, o: str, instead: str) -> None:
        """`instead` is the statement for a struct with unknown tags; empty if the caller has handled them."""
        tagged = struct.tagged(self.version)
        refuse = [self.differs(f, f"{o}.{f.name}") for f in struct.absent(self.version) if not f.ignorable]
        if self.flexible and not tagged and instead:
            self.emit(f"if {o}.unknown_tags: {instead.format(struct=self.constant('T', struct))}")
        elif not self.flexible:
            refuse.append(f"{o}.unknown_tags")
        if refuse:
            self.emit(f"if {' or '.join(refuse)}: raise ValueError")
        for field in struct.present(self.version):
            self.field(field, f"{o}.{field.name}")
        if not self.flexible:
            return
        if not tagged:
            self.parts.append("x")
            return
        self.flush()
        conditions = [self.differs(f, f"{o}.{f.name}") for f in tagged]
        self.emit(
            f"if {' or '.join([f'{o}.unknown_tags', *conditions])}: out += tags({self.constant('T', struct)}, {o})"
        )
        self.emit("else: append(b'\\0')")

    def differs(self, field: Field, value: str) -> str:
        """Return an expression that is true if the value is not the default."""
        if field.default is ...:
            assert field.struct is not None
            inner = " or ".join(self.differs(f, f"{value}.{f.name}") for f in field.struct.fields)
            inner = f"{inner} or {value}.unknown_tags"
            if field.lazy:
                owner, _, name = value.rpartition(".")
                return f"{owner}._{name} is not None and ({inner})"
            return f"{value} is None or {inner}" if field.null_until >= 0 else inner
        if field.default is None:
            return f"{value} is not None"
        if field.type == "bool" and field.default is True:
            return f"not {value}"
        if field.null_until < 0 and field.default in (0, "", []):
            return value
        return f"{value} != {field.default!r}"

    def field(self, field: Field, value: str) -> None:
        if not field.array and field.type in FIXED:
            if field.type == "uuid":
                self.emit(f"if len({value}) != 16: raise ValueError")
            self.add(FIXED[field.type], value)
        elif not field.array and field.struct is not None:
            self.single_struct(field, value)
        elif not field.array and field.type == "string":
            self.string(field, value)
        elif field.array and field.type in FIXED and field.type != "uuid":
            self.integers(field, value)
        else:
            self.array_or_bytes(field, value)

    def add(self, code: str, argument: str) -> None:
        self.parts.append(code)
        self.arguments.append(argument)

    def compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def length(self, field: Field, n: str, elements: str) -> None:
        if self.compact(field):
            self.parts.append(("", elements))
            self.arguments.append(f"{n} + 1")
            self.lengths.append(n)
        else:
            own = "h" if field.type == "string" and not field.array else "i"
            self.arguments.append(n)
            if elements:
                self.parts.append((own, elements))
                self.lengths.append(n)
            else:
                self.parts.append(own)

    def string(self, field: Field, value: str) -> None:
        if self.lengths:
            self.flush()
        s, n = self.fresh_name("s"), self.fresh_name("n")
        if field.nullable(self.version):
            self.emit(f"{s} = {value}")
            self.emit(f"if {s} is None: {s} = b''; {n} = -1")
            self.emit(f"else: {s} = {s}.encode(); {n} = len({s})")
        else:
            self.emit(f"{s} = {value}.encode(); {n} = len({s})")
        self.length(field, n, "s")
        self.arguments.append(s)
        self.has_string = True

    def integers(self, field: Field, value: str) -> None:
        if self.has_string:
            self.flush()
        n, x = self.sized(field, value, "()")
        self.length(field, n, FIXED[field.type])
        self.arguments.append(f"*{x}")

    def sized(self, field: Field, value: str, nothing: str) -> tuple[str, str]:
        """Return the names of the length (-1 for null) and of the value (`nothing` for null)."""
        x, n = self.fresh_name("x"), self.fresh_name("n")
        self.emit(f"{x} = {value}")
        if field.nullable(self.version):
            self.emit(f"if {x} is None: {n} = -1; {x} = {nothing}")
            self.emit(f"else: {n} = len({x})")
        else:
            self.emit(f"{n} = len({x})")
        return n, x

    def single_struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        o = self.fresh_name("o")
        before = self.indent
        self.flush()
        self.emit(f"{o} = {value}")
        if field.nullable(self.version):
            self.emit(f"if {o} is None: append(b'\\xff')")
            self.emit("else:")
            self.indent += " "
            self.parts.append("b")
            self.arguments.append("1")
            self.flush()
        if self.flexible and not field.struct.tagged(self.version):
            self.emit(f"if {o}.unknown_tags: out += slowly({self.constant('T', field.struct)}, {o})")
            self.emit("else:")
            self.indent += " "
        self.struct(field.struct, o, "")
        if self.indent != before:
            self.flush()
        self.indent = before

    def array_or_bytes(self, field: Field, value: str) -> None:
        """Append records or bytes as a part of their own, or write the elements of an array one by one."""
        if self.lengths:
            self.flush()
        n, x = self.sized(field, value, "b''" if not field.array else "()")
        if not field.array and self.compact(field):
            self.flush()
            self.emit(f"append(varint({n} + 1))")
        else:
            self.length(field, n, "")
            self.flush()
        if not field.array:
            self.emit(f"append({x})")
        elif field.type == "uuid":
            self.emit(f"{x} = b''.join({x})")
            self.emit(f"if len({x}) != 16 * max({n}, 0): raise ValueError")
            self.emit(f"append({x})")
        else:
            self.loop(field, x)

    def loop(self, field: Field, x: str) -> None:
        before = self.indent
        o = self.fresh_name("o")
        self.emit(f"for {o} in {x}:")
        self.indent += " "
        if field.struct is not None:
            self.struct(field.struct, o, f"out += slowly({{struct}}, {o}); continue")
        else:
            assert field.type == "string"
            element = Field(field.name, field.since, field.until)
            element.type = "string"
            element.flexible = field.flexible
            self.field(element, o)
        self.flush()
        if self.lines[-1].endswith(":"):
            self.emit("pass")
        self.indent = before

    def flush(self) -> None:
        parts, self.parts = self.parts, []
        arguments, self.arguments = ", ".join(self.arguments), []
        lengths, self.lengths = ", ".join(self.lengths), []
        self.has_string = False
        if not parts:
            return
        if not lengths:
            code = "".join(part for part in parts if isinstance(part, str))
            if not code.strip("x"):
                self.emit(f"append({bytes(len(code))!r})")
            else:
                self.emit(f"append({self.constant('p', Packing('>' + code).pack)}({arguments}))")
            return
        merged: list[str | tuple[str, str]] = []
        for part in parts:
            if isinstance(part, str) and merged and isinstance(merged[-1], str):
                merged[-1] += part
            else:
                merged.append(part)
        self.emit(f"append({self.constant('P', _PackTable(merged))}[{lengths}]({arguments}))")
