"""Compile the decoder of one message in one version; see `compiled`."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from struct import Struct as Packing
from struct import calcsize
from typing import Any

from odradek_wire.compiled import TABLE_LIMIT, CodecSource
from odradek_wire.errors import TooManyElementsError
from odradek_wire.interpreter import ELEMENT_SHIFT, MAX_STRING, Reader, minimum_size
from odradek_wire.message import Message
from odradek_wire.notation import FIXED, Field, MessageType, StructType


def compile_decoder(message: MessageType, cls: type[Message], version: int) -> Callable[..., Any]:
    """Return ``decode(data, position=0) -> message``."""
    source = DecoderSource(message, cls, version)
    return source.function("decode", source.text())


def compile_limited_decoder(message: MessageType, cls: type[Message], version: int) -> Callable[..., Any]:
    """Return ``decode(data, position, limit) -> (message, its elements)``, which raises TooManyElementsError."""
    source = DecoderSource(message, cls, version, limited=True)
    return source.function("decode", source.text())


Run = Sequence[tuple[str, str]]
"""Fields of fixed size: the format character of `struct` and the target of the assignment."""


class _Lengths:
    """A table from a length to the unpack function of a field of that length and the fixed fields after it.

    The compiled code looks into the plain dict `known`, because nothing is faster, and calls `learn` on a KeyError.
    """

    def __init__(self, code: str, after: str, compact: bool, nullable: bool) -> None:
        self.code = code
        self.after = after
        self.compact = compact
        self.nullable = nullable
        self.known: dict[int, Callable[..., Any]] = {}

    def learn(self, key: int) -> Callable[..., Any]:
        length = key - 1 if self.compact else key
        if length < 0:
            if length != -1 or not self.nullable:
                raise ValueError(length)
            length = 0
        unpack = Packing(f">{length}{self.code}{self.after}").unpack_from
        if len(self.known) < TABLE_LIMIT:
            self.known[key] = unpack
        return unpack


class DecoderSource(CodecSource):
    """The source of a decoder, in which `m` is the data and `p` the position.

    A run is a sequence of fixed fields that one call will read. A field of variable length may come first, if its
    length has been read, and an array that is usually absent may be among them.
    """

    def __init__(self, message: MessageType, cls: type[Message], version: int, *, limited: bool = False) -> None:
        """With `limited`, the source counts `left` down: the number of elements that it may still read."""
        super().__init__(message, cls, version)
        self.limited = limited
        self.run: list[tuple[str, str]] = []
        self.pending_variable: tuple[Field, str, str] | None = None
        self.assumed_absent: tuple[Field, str, str, int] | None = None
        self.names |= {
            "new": object.__new__,
            "varint": _read_varint,
            "long_length": _read_long_length,
            "short_varint": _read_string_length,
            "count": _read_count,
        }
        self.names |= {"explain": self.explain, "tags": self.tags, "SECOND": _SECOND, "THIRD": _THIRD}
        if limited:
            self.names |= {"tags": self.limited_tags, "TooMany": TooManyElementsError}

    def explain(self, data: Any, position: int, error: Exception, limit: int | None = None) -> Exception:
        """Raise the error with its field and position, which the compiled code does not know."""
        Reader(self.message, self.cls, self.version, data, position, limit=limit).decode()
        return AssertionError(
            f"{self.message.name} v{self.version}: the interpreter accepts what the compiled codec rejects: {error!r}"
        )

    def tags(self, data: Any, position: int, count: int, struct: StructType, target: Any) -> int:
        reader = Reader(self.message, self.cls, self.version, data, position)
        return reader.decode_tags(struct, target, count)

    def limited_tags(
        self, data: Any, position: int, count: int, struct: StructType, target: Any, left: int
    ) -> tuple[int, int]:
        """Like `tags`; also return how many elements are left."""
        reader = Reader(self.message, self.cls, self.version, data, position, limit=left)
        return reader.decode_tags(struct, target, count), reader.left

    def text(self) -> str:
        assert all(field.type != "records" for field in self.message.root.fields)
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
                "def decode(m, p, limit):" if self.limited else "def decode(m, p=0):",
                "  start = p",
                *(["  left = limit"] if self.limited else []),
                *(["  if type(m) is not memoryview: m = memoryview(m)"] if zero_copy else []),
                "  try:",
                *self.lines,
                "    if p != len(m): raise ValueError",
                *(["    if left < 0: raise TooMany(limit)"] if self.limited else []),
                "    return o, limit - left" if self.limited else "    return o",
                "  except E as e: error = e",
                f"  raise explain(m, start, error{', limit' if self.limited else ''})",
            ]
        )

    def struct(self, struct: StructType, o: str) -> None:
        self.emit(f"{o} = new({self.constant('C', self.struct_class(struct))})")
        none_targets = []
        for field in struct.fields:
            if field.tag is not None or not field.since <= self.version <= field.until:
                if field.default is None:
                    none_targets.append(f"{o}.{field.name}")
                elif field.lazy:
                    none_targets.append(f"{o}._{field.name}")
                elif field.default is ...:
                    assert field.struct is not None
                    self.emit(f"{o}.{field.name} = {self.constant('C', self.struct_class(field.struct))}()")
                else:
                    self.emit(f"{o}.{field.name} = {field.default!r}")
        if none_targets:
            self.emit(f"{' = '.join(none_targets)} = None")
        self.emit(f"{o}.unknown_tags = ()")
        present = struct.present(self.version)
        for field, following in zip_longest(present, present[1:]):
            if self.usually_absent(field, following):
                self.absent_array(field, f"{o}.{field.name}")
            else:
                self.field(field, f"{o}.{field.name}")
        if not self.flexible:
            return
        tagged = self.constant("T", struct)
        if self.run or self.pending_variable:
            self.run.append(("B", "t"))
            self.flush()
            self.emit(f"if t: {self.tags_call('p, t', tagged, o)}")
        else:
            self.emit(f"if m[p]: {self.tags_call('p + 1, m[p]', tagged, o)}")
            self.emit("else: p += 1")

    def tags_call(self, position_and_count: str, tagged: str, o: str) -> str:
        if not self.limited:
            return f"p = tags(m, {position_and_count}, {tagged}, {o})"
        return f"p, left = tags(m, {position_and_count}, {tagged}, {o}, left)"

    def count_elements(self, elements: str) -> None:
        """Count elements before they are read."""
        if self.limited:
            self.emit(f"left -= {elements}")
            self.emit("if left < 0: raise TooMany(limit)")

    def field(self, field: Field, target: str) -> None:
        if not field.array and field.type in FIXED:
            self.run.append((FIXED[field.type], target))
        elif not field.array and field.struct is not None:
            self.single_struct(field, target)
        elif field.type == "records":
            self.records(field, target)
        else:
            n = self.length(field)
            integers = field.array and field.type in FIXED and field.type != "uuid"
            if integers or (not field.array and field.type in ("string", "bytes")):
                self.pending_variable = (field, n, target)
            else:
                self.array(field, n, target)

    def length(self, field: Field) -> str:
        """Read the length with the run before it; return the name of its variable, which is length + 1 if compact."""
        n = self.fresh_name("n")
        if self.compact(field):
            self.run.append(("B", n))
            self.flush()
            if field.array and not field.nullable(self.version):
                self.emit(f"if not 0 < {n} < 128: {n}, p = count(m, p)")
            else:
                reader = "short_varint" if field.type == "string" and not field.array else "varint"
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

    def records(self, field: Field, target: str) -> None:
        """Assign a view of `n` bytes.

        The length of a batch has two or three bytes, and a call costs more than reading them inline. The two bytes
        after the first exist even if they are not part of the length: at least the tag counts of two structs follow.
        """
        n = self.fresh_name("n")
        if self.compact(field):
            self.run.append(("B", n))
            step = self.flush(ahead=[("B", "b"), ("B", "c")])
            self.emit(f"if {n} < 128: {n} -= 1; p += {step}")
            self.emit(f"elif b < 128: {n} += SECOND[b]; p += {step + 1}")
            self.emit(f"elif c < 128: {n} += SECOND[b] + THIRD[c]; p += {step + 2}")
            self.emit(f"else: {n}, p = long_length(m, p + {step})")
        else:
            self.run.append(("i", n))
            self.flush()
        before = self.indent
        if field.nullable(self.version):
            self.emit(f"if {n} == -1: {target} = None")
            self.emit("else:")
            self.indent += " "
        if not self.compact(field) or not field.nullable(self.version):
            self.emit(f"if {n} < 0: raise ValueError")
        self.emit(f"q = p + {n}")
        self.emit(f"{target} = m[p:q]")
        self.emit("p = q")
        self.indent = before

    def usually_absent(self, field: Field, following: Field | None) -> bool:
        """Return whether this is a nullable array of structs with fixed fields after it, such as aborted
        transactions."""
        fixed = following is not None and not following.array and following.type in FIXED
        return fixed and field.array and field.struct is not None and field.nullable(self.version)

    def absent_array(self, field: Field, target: str) -> None:
        """Continue the run after the array; if the array has elements, `read_assumed_absent` reads the rest again."""
        n = self.fresh_name("n")
        if self.assumed_absent is not None:
            self.flush()
        self.run.append(("B" if self.compact(field) else "i", n))
        self.assumed_absent = (field, n, target, len(self.run))

    def array(self, field: Field, n: str, target: str) -> None:
        """Read an array whose length `n` has been read."""
        before = self.indent
        null, empty = ("0", "1") if self.compact(field) else ("-1", "0")
        if field.nullable(self.version):
            missing = f"not {n}" if self.compact(field) else f"{n} == {null}"
            self.emit(f"if {missing}: {target} = None")
            self.emit("else:")
            self.indent += " "
        if not self.compact(field):
            self.emit(f"if {n} < {empty}: raise ValueError")
        self.count_elements(f"{n} - {empty}")
        if field.type == "uuid":
            length = f"{n} - 1" if self.compact(field) else n
            self.emit(f"q = p + ({length}) * 16")
            self.emit("if q > len(m): raise ValueError")
            self.emit(f"{target} = [bytes(m[i:i + 16]) for i in range(p, q, 16)]")
            self.emit("p = q")
        else:
            self.loop(field, n, empty, target)
        self.indent = before

    def loop(self, field: Field, n: str, empty: str, target: str) -> None:
        """Read the elements one by one; `empty` is the value of `n` for an empty array."""
        items = self.fresh_name("l")
        if minimum_size(field, self.version, self.flexible) == 0:
            self.emit(f"if {n} - {empty} > len(m): raise ValueError")
        self.emit(f"{items} = {target} = []")
        # Not a range, which costs as much as reading a short element.
        self.emit(f"while {n} > {empty}:")
        self.indent += " "
        self.emit(f"{n} -= 1")
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

    def flush(self, ahead: Run = ()) -> int:
        """Read the run, and with it the fields `ahead`, without moving past those: the caller adds the result to
        `p`."""
        pending_variable, self.pending_variable = self.pending_variable, None
        assumed_absent, self.assumed_absent = self.assumed_absent, None
        run, self.run = self.run, []
        if pending_variable is not None and pending_variable[0].array:
            self.integers(*pending_variable)
            pending_variable = None
        cut = len(run) if assumed_absent is None else assumed_absent[-1]
        left = _size(run[:cut])
        if pending_variable is not None:
            self.variable(*pending_variable, [*run, *ahead], left)
            left = 0
        elif run:
            self.fixed([*run, *ahead])
        if assumed_absent is not None:
            self.move(left)
            self.read_assumed_absent(assumed_absent, [*run[cut:], *ahead])
            left = _size(run[cut:])
        if ahead:
            return left
        self.move(left)
        return 0

    def move(self, size: int) -> None:
        if size:
            self.emit(f"p += {size}")

    def fixed(self, run: Run) -> None:
        if _codes(run) == "B":
            self.emit(f"{run[0][1]} = m[p]")
        else:
            unpack = self.constant("u", Packing(">" + _codes(run)).unpack_from)
            self.emit(f"{_targets(run)}= {unpack}(m, p)")

    def variable(self, field: Field, n: str, target: str, run: Run, size: int) -> None:
        """Read a string or bytes and the run after it; move past it and the first `size` bytes of the run."""
        compact, nullable = self.compact(field), field.nullable(self.version)
        self.find_unpack(_Lengths("s", _codes(run), compact, nullable), n)
        value = "s.decode()" if field.type == "string" else "s"
        if self.limited:
            before = self.indent
            self.emit(f"if {n} > {1 << ELEMENT_SHIFT}:" if compact else f"if {n} >= {1 << ELEMENT_SHIFT}:")
            self.indent += " "
            self.count_elements(f"({n}{' - 1' if compact else ''}) >> {ELEMENT_SHIFT}")
            self.indent = before
        self.emit(f"s, {_targets(run)}= u(m, p)")
        step = size - 1 if compact else size
        found = f"{target} = {value}; p += {n}{f' + {step}' if step else ''}"
        if nullable:
            self.emit(f"if {n} == {0 if compact else -1}: {target} = None; p += {size}")
            self.emit(f"else: {found}")
        else:
            self.emit(found)

    def integers(self, field: Field, n: str, target: str) -> None:
        null, empty = (0, 1) if self.compact(field) else (-1, 0)
        code = FIXED[field.type]
        width = calcsize(">" + code)
        before = self.indent
        self.emit(f"if {n} == {empty}: {target} = []")
        if field.nullable(self.version):
            self.emit(f"elif {n} == {null}: {target} = None")
        self.emit("else:")
        self.indent += " "
        self.count_elements(f"{n} - {empty}")
        self.find_unpack(_Lengths(code, "", self.compact(field), False), n)
        self.emit(f"{target} = [*u(m, p)]; p += {n} * {width}{f' - {width}' * empty}")
        self.indent = before

    def find_unpack(self, lengths: _Lengths, n: str) -> None:
        self.emit(f"try: u = {self.constant('U', lengths.known)}[{n}]")
        self.emit(f"except KeyError: u = {self.constant('L', lengths.learn)}({n})")

    def read_assumed_absent(self, assumed_absent: tuple[Field, str, str, int], run: Run) -> None:
        """Read an array that the run assumed to be absent, and then the fields after it again."""
        field, n, target, _ = assumed_absent
        before = self.indent
        self.emit(f"if {n} > 1:" if self.compact(field) else f"if {n} > 0 or {n} < -1:")
        self.indent += " "
        if self.compact(field):
            self.emit(f"if {n} > 127: {n}, p = varint(m, p)")
        self.array(field, n, target)
        self.fixed(run)
        self.indent = before
        self.emit(f"else: {target} = {f'[] if {n} else None' if self.compact(field) else f'None if {n} else []'}")


def _codes(run: Run) -> str:
    return "".join(code for code, _ in run)


def _targets(run: Run) -> str:
    return "".join(f"{target}, " for _, target in run)


def _size(run: Run) -> int:
    return calcsize(">" + _codes(run))


_SECOND = tuple((byte << 7) - 128 - 1 for byte in range(256))
_THIRD = tuple((byte << 14) - 16384 for byte in range(128))
"""The value that the second and third byte of a varint add to the length, which is the varint minus one. Each value
also subtracts the continuation bit of the byte before."""


def _read_varint(m: Any, p: int) -> tuple[int, int]:
    """Read the varint whose first byte is just before `p`; return its value and the position after it."""
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
    """Like `_read_varint`, for the count of an array that must not be null."""
    value, p = _read_varint(m, p) if m[p - 1] > 127 else (0, p)
    if value < 1:
        raise ValueError("null")
    return value, p


def _read_long_length(m: Any, p: int) -> tuple[int, int]:
    value, p = _read_varint(m, p)
    return value - 1, p


def _read_string_length(m: Any, p: int) -> tuple[int, int]:
    value, p = _read_varint(m, p)
    if value > MAX_STRING + 1:
        raise ValueError(value)
    return value, p
