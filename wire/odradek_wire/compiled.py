"""Writes and compiles the codec of one message in one version, as straight Python source.

What makes it fast, and keeps it short enough to compile in a millisecond or two:

- neighbouring fields of fixed size are one `struct` call, and so is a string or an array of integers together with the
  fixed fields after it (decoding) or around it (encoding): a table holds one `struct` per length that was seen;
- structs are filled without their constructor; arrays of structs are loops in place, no function is called per element;
- reading past the end is noticed by `struct` or by indexing; a count promises nothing, elements are made as they come;
- whatever is rare (tagged fields, unknown tags, every error) is handed to `walk`, which finds the field and the byte.

Both must accept and refuse the same: an error that `walk` does not find again is a mistake of ours.
"""

from collections.abc import Callable
from struct import Struct as Packing
from struct import calcsize
from struct import error as PackingError
from typing import Any

from odradek_wire.message import Message
from odradek_wire.notation import FIXED, Field, MessageType, StructType
from odradek_wire.walk import MAX_STRING, Reader, Writer, minimum_size, varint

_TABLE_LIMIT = 256
"""Lengths remembered in one table; others are made anew each time."""


def compile_decoder(message: MessageType, cls: type[Message], version: int) -> Callable[..., Any]:
    """``decode(data, position=0) -> message``"""
    source = _DecoderSource(message, cls, version)
    return source.function("decode", source.text())


def compile_encoder(message: MessageType, cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    """``encode(message) -> parts``"""
    source = _EncoderSource(message, cls, version)
    return source.function("encode", source.text())


class _Source:
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


class _Lengths(dict[int, Callable[..., Any]]):
    """Length → unpack function for a field of that length and the fixed fields after it."""

    def __init__(self, code: str, after: str, compact: bool, nullable: bool) -> None:
        self.code = code
        self.after = after
        self.compact = compact
        self.nullable = nullable

    def __missing__(self, key: int) -> Callable[..., Any]:
        length = key - 1 if self.compact else key
        if length < 0:
            if length != -1 or not self.nullable:
                raise ValueError(length)
            length = 0
        unpack = Packing(f">{length}{self.code}{self.after}").unpack_from
        if len(self) < _TABLE_LIMIT:
            self[key] = unpack
        return unpack


class _DecoderSource(_Source):
    """`m` is the data, `p` the position. A run is the fixed fields waiting to be read by one call; it may be led by a
    field of variable length whose length has been read already."""

    def __init__(self, message: MessageType, cls: type[Message], version: int) -> None:
        super().__init__(message, cls, version)
        self.run: list[tuple[str, str]] = []
        self.lead: tuple[Field, str, str] | None = None
        self.names |= {
            "new": object.__new__,
            "varint": _read_varint,
            "short_varint": _read_string_length,
            "count": _read_count,
        }
        self.names |= {"explain": self.explain, "tags": self.tags, "SECOND": _SECOND, "THIRD": _THIRD}

    def explain(self, data: Any, position: int, error: Exception) -> Exception:
        """The error that says where; the compiled code only knows that there is one."""
        Reader(self.message, self.cls, self.version, data, position).decode()
        return AssertionError(f"{self.message.name} v{self.version}: {error!r} only where it is compiled")

    def tags(self, data: Any, position: int, count: int, struct: StructType, target: Any) -> int:
        reader = Reader(self.message, self.cls, self.version, data, position)
        return reader.decode_tags(struct, target, count)

    def text(self) -> str:
        zero_copy = any(
            field.type == "records"
            for struct in (self.message.root, *self.message.structs.values())
            for field in struct.fields
        )
        self.indent = "    "
        self.struct(self.message.root, "o")
        self.flush()
        return "\n".join(
            [
                "def decode(m, p=0):",
                "  start = p",
                *(["  if type(m) is not memoryview: m = memoryview(m)"] if zero_copy else []),
                "  try:",
                *self.lines,
                "    if p != len(m): raise ValueError",
                "    return o",
                "  except E as e: error = e",
                "  raise explain(m, start, error)",
            ]
        )

    def struct(self, struct: StructType, o: str) -> None:
        self.emit(f"{o} = new({self.constant('C', self.struct_class(struct))})")
        nothing = []
        for field in struct.fields:
            if field.tag is not None or not field.since <= self.version <= field.until:
                if field.default is None:
                    nothing.append(f"{o}.{field.name}")
                elif field.lazy:
                    nothing.append(f"{o}._{field.name}")
                elif field.default is ...:
                    assert field.struct is not None
                    self.emit(f"{o}.{field.name} = {self.constant('C', self.struct_class(field.struct))}()")
                else:
                    self.emit(f"{o}.{field.name} = {field.default!r}")
        if nothing:
            self.emit(f"{' = '.join(nothing)} = None")
        self.emit(f"{o}.unknown_tags = ()")
        for field in struct.present(self.version):
            self.field(field, f"{o}.{field.name}")
        if not self.flexible:
            return
        tagged = self.constant("T", struct)
        if self.run or self.lead:
            self.run.append(("B", "t"))
            self.flush()
            self.emit(f"if t: p = tags(m, p, t, {tagged}, {o})")
        else:
            self.emit(f"if m[p]: p = tags(m, p + 1, m[p], {tagged}, {o})")
            self.emit("else: p += 1")

    def field(self, field: Field, target: str) -> None:
        if not field.array and field.type in FIXED:
            self.run.append((FIXED[field.type], target))
        elif not field.array and field.struct is not None:
            self.single_struct(field, target)
        else:
            n = self.length(field)
            integers = field.array and field.type in FIXED and field.type != "uuid"
            if integers or (not field.array and field.type in ("string", "bytes")):
                self.lead = (field, n, target)
            else:
                self.block(field, n, target)

    def length(self, field: Field) -> str:
        """Reads the length with the run before it; the name of the variable, which is length + 1 where compact."""
        n = self.fresh_name("n")
        if self.compact(field):
            self.run.append(("B", n))
            self.flush()
            if field.array and not field.nullable(self.version):
                self.emit(f"if not 0 < {n} < 128: {n}, p = count(m, p)")
            else:
                reader = "short_varint" if field.type == "string" and not field.array else "varint"
                if field.type == "records":
                    # Batches have lengths of two or three bytes, and a call costs more than reading them.
                    self.emit(f"if {n} > 127:")
                    self.emit(" b = m[p]")
                    self.emit(f" if b < 128: {n} += SECOND[b]; p += 1")
                    self.emit(" else:")
                    self.emit("  c = m[p + 1]")
                    self.emit(f"  if c < 128: {n} += SECOND[b] + THIRD[c]; p += 2")
                    self.emit(f"  else: {n}, p = varint(m, p)")
                else:
                    self.emit(f"if {n} > 127: {n}, p = {reader}(m, p)")
        else:
            self.run.append(("h" if field.type == "string" and not field.array else "i", n))
            self.flush()
        return n

    def compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def single_struct(self, field: Field, target: str) -> None:
        assert field.struct is not None
        o = self.fresh_name("o")
        before = self.indent
        if field.nullable(self.version):
            n = self.fresh_name("n")
            self.run.append(("b", n))
            self.flush()
            self.emit(f"if {n} < 0: {target} = None")
            self.emit("else:")
            self.indent += " "
        self.struct(field.struct, o)
        if self.indent != before:
            self.flush()
        self.emit(f"{target} = {o}")
        self.indent = before

    def block(self, field: Field, n: str, target: str) -> None:
        """Records, and arrays that are loops."""
        before = self.indent
        none, least = ("0", "1") if self.compact(field) else ("-1", "0")
        self.flush()
        if field.nullable(self.version):
            missing = f"not {n}" if self.compact(field) else f"{n} == {none}"
            self.emit(f"if {missing}: {target} = None")
            self.emit("else:")
            self.indent += " "
        if not self.compact(field) or not (field.array or field.nullable(self.version)):
            self.emit(f"if {n} < {least}: raise ValueError")
        length = f"{n} - 1" if self.compact(field) else n
        if not field.array:
            self.emit(f"q = p + {length}")
            self.emit(f"{target} = m[p:q]")
            self.emit("p = q")
        elif field.type == "uuid":
            self.emit(f"q = p + ({length}) * 16")
            self.emit("if q > len(m): raise ValueError")
            self.emit(f"{target} = [bytes(m[i:i + 16]) for i in range(p, q, 16)]")
            self.emit("p = q")
        else:
            self.loop(field, length, target)
        self.indent = before

    def loop(self, field: Field, length: str, target: str) -> None:
        items = self.fresh_name("l")
        if minimum_size(field, self.version, self.flexible) == 0:
            self.emit(f"if {length} > len(m): raise ValueError")
        self.emit(f"{items} = {target} = []")
        self.emit(f"for _ in range({length}):")
        self.indent += " "
        o = self.fresh_name("o")
        if field.struct is not None:
            self.struct(field.struct, o)
        else:
            assert field.type == "string"
            element = Field(field.name, field.since, field.until)
            element.type = "string"
            element.flexible = field.flexible
            self.field(element, o)
        self.flush()
        self.emit(f"{items}.append({o})")

    def flush(self) -> None:
        codes = "".join(code for code, _ in self.run)
        targets = "".join(f"{target}, " for _, target in self.run)
        size = calcsize(">" + codes)
        lead, self.lead = self.lead, None
        run, self.run = self.run, []
        if lead is not None and lead[0].array:
            self.integers(*lead)
            lead = None
        if lead is None:
            if codes == "B":
                self.emit(f"{run[0][1]} = m[p]")
            elif run:
                unpack = self.constant("u", Packing(">" + codes).unpack_from)
                self.emit(f"{targets}= {unpack}(m, p)")
            if run:
                self.emit(f"p += {size}")
            return
        field, n, target = lead
        compact, nullable = self.compact(field), field.nullable(self.version)
        table = self.constant("U", _Lengths("s", codes, compact, nullable))
        none = f"{n} == {0 if compact else -1}"
        value = "s.decode()" if field.type == "string" else "s"
        self.emit(f"s, {targets}= {table}[{n}](m, p)")
        step = size - 1 if compact else size
        found = f"{target} = {value}; p += {n}{f' + {step}' if step else ''}"
        if nullable:
            self.emit(f"if {none}: {target} = None; p += {size}")
            self.emit(f"else: {found}")
        else:
            self.emit(found)

    def integers(self, field: Field, n: str, target: str) -> None:
        none, empty = (0, 1) if self.compact(field) else (-1, 0)
        code = FIXED[field.type]
        width = calcsize(">" + code)
        table = self.constant("U", _Lengths(code, "", self.compact(field), False))
        self.emit(f"if {n} == {empty}: {target} = []")
        if field.nullable(self.version):
            self.emit(f"elif {n} == {none}: {target} = None")
        self.emit(f"else: {target} = [*{table}[{n}](m, p)]; p += {n} * {width}{f' - {width}' * empty}")


_SECOND = tuple((byte << 7) - 128 for byte in range(256))
_THIRD = tuple((byte << 14) - 16384 for byte in range(128))
"""What the second and third byte of a varint add, less the continuation bit of the byte before."""


def _read_varint(m: Any, p: int) -> tuple[int, int]:
    """The varint whose first byte, just before `p`, has been read; its value and the position after it."""
    byte = m[p]
    value = m[p - 1] & 127 | (byte & 127) << 7
    if byte < 128:
        return value, p + 1
    byte = m[p + 1]
    value |= (byte & 127) << 14
    if byte < 128:
        return value, p + 2
    value |= (m[p + 2] & 127) << 21
    if m[p + 2] < 128:
        return value, p + 3
    if m[p + 3] > 7:
        raise ValueError(value)
    return value | m[p + 3] << 28, p + 4


def _read_count(m: Any, p: int) -> tuple[int, int]:
    """As `_read_varint`, for the count of an array that is not null."""
    value, p = _read_varint(m, p) if m[p - 1] > 127 else (0, p)
    if value < 1:
        raise ValueError("null")
    return value, p


def _read_string_length(m: Any, p: int) -> tuple[int, int]:
    value, p = _read_varint(m, p)
    if value > MAX_STRING + 1:
        raise ValueError(value)
    return value, p


class _Packs(dict[Any, Callable[..., bytes]]):
    """Length (or tuple of lengths) → pack function for fields around strings or arrays of those lengths.

    `parts` are format strings, and for each length a pair: the code of its own field ("" where it is a varint) and of
    the elements that follow it ("" where none do)."""

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
        if len(self) < _TABLE_LIMIT:
            self[key] = pack
        return pack


def _arguments(code: str) -> int:
    return len(code.replace("16s", "s").replace("x", ""))


def _with_varints(pack: Callable[..., bytes], at: list[int]) -> Callable[..., bytes]:
    """Lengths that take more than one byte are made into varints first."""

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


class _EncoderSource(_Source):
    """`out` is the list of parts. A group is what one call will pack: fixed fields, and either one string or any number
    of arrays of integers."""

    def __init__(self, message: MessageType, cls: type[Message], version: int) -> None:
        super().__init__(message, cls, version)
        self.parts: list[str | tuple[str, str]] = []
        self.arguments: list[str] = []
        self.keys: list[str] = []
        self.stringy = False
        self.names |= {"varint": _varint, "explain": self.explain, "slowly": self.slowly, "tags": self.tags}

    def explain(self, value: Any, error: Exception) -> Exception:
        """The error that says where; the compiled code only knows that there is one."""
        Writer(self.message, self.version).encode(value)
        return AssertionError(f"{self.message.name} v{self.version}: {error!r} only where it is compiled")

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
        """`instead` is what to do with a struct that has unknown tags, empty if the caller has asked already."""
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
        """An expression that is true when the value is not the default."""
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
            self.block(field, value)

    def add(self, code: str, argument: str) -> None:
        self.parts.append(code)
        self.arguments.append(argument)

    def compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def length(self, field: Field, n: str, elements: str) -> None:
        if self.compact(field):
            self.parts.append(("", elements))
            self.arguments.append(f"{n} + 1")
            self.keys.append(n)
        else:
            own = "h" if field.type == "string" and not field.array else "i"
            self.arguments.append(n)
            if elements:
                self.parts.append((own, elements))
                self.keys.append(n)
            else:
                self.parts.append(own)

    def string(self, field: Field, value: str) -> None:
        if self.keys:
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
        self.stringy = True

    def integers(self, field: Field, value: str) -> None:
        if self.stringy:
            self.flush()
        n, x = self.sized(field, value, "()")
        self.length(field, n, FIXED[field.type])
        self.arguments.append(f"*{x}")

    def sized(self, field: Field, value: str, nothing: str) -> tuple[str, str]:
        """Names of the length, -1 for null, and of the value, `nothing` for null."""
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

    def block(self, field: Field, value: str) -> None:
        """Records and bytes, which become parts, and arrays that are loops."""
        if self.keys:
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
        keys, self.keys = ", ".join(self.keys), []
        self.stringy = False
        if not parts:
            return
        if not keys:
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
        self.emit(f"append({self.constant('P', _Packs(merged))}[{keys}]({arguments}))")
