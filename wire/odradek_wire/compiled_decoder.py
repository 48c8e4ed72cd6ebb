"""The source of a decoder: see `compiled`."""

from collections.abc import Callable
from struct import Struct as Packing
from struct import calcsize
from typing import Any

from odradek_wire.compiled import TABLE_LIMIT, Source
from odradek_wire.message import Message
from odradek_wire.notation import FIXED, Field, MessageType, StructType
from odradek_wire.walk import MAX_STRING, Reader, minimum_size


def compile_decoder(message: MessageType, cls: type[Message], version: int) -> Callable[..., Any]:
    """``decode(data, position=0) -> message``"""
    source = DecoderSource(message, cls, version)
    return source.function("decode", source.text())


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
        if len(self) < TABLE_LIMIT:
            self[key] = unpack
        return unpack


class DecoderSource(Source):
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
