"""Decode and encode a message field by field from its definition: slow, complete, and able to name a wrong field.

The compiled codec calls this module for tagged fields, and after an error to find the field and the byte. Both must
accept and reject the same messages; tests compare them.
"""

import reprlib
from struct import Struct as Packing
from struct import error as PackingError
from typing import Any

from odradek_wire.errors import DecodeError, EncodeError, TooManyElementsError
from odradek_wire.message import Message
from odradek_wire.notation import FIXED, Field, MessageType, StructType

_PACKING = {name: Packing(">" + code) for name, code in FIXED.items()}

ELEMENT_SHIFT = 12
"""Where elements are limited, a string or bytes count as one for each 4,096 bytes. Records do not count."""

MAX_STRING = 0x7FFF
"""Kafka writes the length of a string as int16, and keeps that limit for varint lengths."""


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """Return the least size of one element of this type, which bounds the count of an array."""
    if field.struct is not None:
        size = 1 if flexible else 0
        for inner in field.struct.present(version):
            compact = flexible and inner.flexible
            if inner.array:
                size += 1 if compact else 4
            elif inner.struct is not None and inner.nullable(version):
                size += 1
            else:
                size += minimum_size(inner, version, flexible)
        return size
    if field.type in FIXED:
        return _PACKING[field.type].size
    if flexible and field.flexible:
        return 1
    return 2 if field.type == "string" else 4


class _Malformed(Exception):
    pass


class Reader:
    """Decode one message and keep the path of the current field."""

    def __init__(
        self,
        message: MessageType,
        cls: type[Message],
        version: int,
        data: bytes | bytearray | memoryview,
        position: int = 0,
        *,
        limit: int | None = None,
    ) -> None:
        """`limit` is the number of elements of arrays and tagged fields that the message may have. Reading more raises
        TooManyElementsError."""
        self.message = message
        self.cls = cls
        self.version = version
        self.flexible = message.flexible(version)
        self.data = memoryview(data)
        self.end = len(self.data)
        self.position = position
        self.limit = limit
        self.left = 0 if limit is None else limit
        self.path: list[str] = []

    def decode(self) -> Any:
        """Decode the message, which must reach to the end of the data. Raises DecodeError."""
        result, _ = self.decode_prefix()
        if self.position != self.end:
            raise self._error(f"{self.end - self.position} bytes after the end of the message")
        return result

    def decode_prefix(self) -> tuple[Any, int]:
        """Decode the message; return it and the position of its end. Raises DecodeError."""
        try:
            result = self.cls()
            self._struct(self.message.root, result)
        except _Malformed as e:
            raise self._error(str(e)) from None
        return result, self.position

    def _error(self, reason: str) -> DecodeError:
        path = "".join(self.path).lstrip(".")
        return DecodeError(self.message.name, self.version, path, self.position, reason)

    def _struct(self, struct: StructType, target: Any) -> None:
        for field in struct.present(self.version):
            self.path.append("." + field.name)
            setattr(target, field.name, self._field(field))
            self.path.pop()
        if self.flexible:
            self._tags(struct, target)

    def _tags(self, struct: StructType, target: Any) -> None:
        self.path.append(".tags")
        self._tagged(struct, target, self._varint())
        self.path.pop()

    def decode_tags(self, struct: StructType, target: Any, first: int) -> int:
        """Decode the tagged fields of a struct; `first` is the first byte of their count. Return the end position."""
        self.path.append(".tags")
        try:
            if first > 0x7F:
                self.position -= 1
                first = self._varint()
            self._tagged(struct, target, first)
        except _Malformed as e:
            raise ValueError(str(e)) from None
        return self.position

    def _count_elements(self, elements: int) -> None:
        if self.limit is not None:
            self.left -= elements
            if self.left < 0:
                raise TooManyElementsError(self.limit)

    def _tagged(self, struct: StructType, target: Any, count: int) -> None:
        self._count_elements(count)
        known = {field.tag: field for field in struct.tagged(self.version)}
        unknown = []
        last = -1
        for _ in range(count):
            tag = self._varint()
            if tag <= last:
                raise _Malformed(f"tag {tag} after tag {last}: tags must ascend")
            last = tag
            size = self._varint()
            self._need(size)
            end = self.position + size
            if tag in known:
                field = known[tag]
                self.path[-1] = "." + field.name
                setattr(target, field.name, self._field(field))
                if self.position != end:
                    raise _Malformed(f"tag {tag} of {size} bytes: its field ends at byte {self.position}")
                self.path[-1] = ".tags"
            else:
                unknown.append((tag, bytes(self.data[self.position : end])))
                self.position = end
        if unknown:
            target.unknown_tags = tuple(unknown)

    def _field(self, field: Field) -> Any:
        if not field.array:
            return self._value(field, field.nullable(self.version))
        count = self._length(field, 4)
        if count < 0:
            return self._null(field.nullable(self.version), count)
        if count * minimum_size(field, self.version, self.flexible) > self.end - self.position:
            raise _Malformed(f"an array of {count} elements, {self.end - self.position} bytes left")
        self._count_elements(count)
        result = []
        for i in range(count):
            self.path.append(f"[{i}]")
            result.append(self._value(field, False))
            self.path.pop()
        return result

    def _value(self, field: Field, nullable: bool) -> Any:
        if field.struct is not None:
            # Kafka marks a null struct by an int8, but by a varint if the field is tagged.
            if nullable and (self._varint() == 0 if field.tag is not None else self._fixed("int8") < 0):
                return None
            value = getattr(self.cls, field.struct.name)()
            self._struct(field.struct, value)
            return value
        if field.type in FIXED:
            return self._fixed(field.type)
        size = self._length(field, 2 if field.type == "string" else 4)
        if size < 0:
            return self._null(nullable, size)
        if field.type == "string" and size > MAX_STRING:
            raise _Malformed(f"a string of {size} bytes, at most {MAX_STRING} allowed")
        self._need(size)
        raw = self.data[self.position : self.position + size]
        self.position += size
        if field.type == "records":
            return raw
        self._count_elements(size >> ELEMENT_SHIFT)
        if field.type == "bytes":
            return bytes(raw)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as e:
            self.position -= size
            raise _Malformed(f"not UTF-8: {e.reason}") from None

    def _null(self, nullable: bool, length: int) -> None:
        if length != -1:
            raise _Malformed(f"length must be at least -1, got {length}")
        if not nullable:
            raise _Malformed("null where null is not allowed")

    def _length(self, field: Field, width: int) -> int:
        if self.flexible and field.flexible:
            return self._varint() - 1
        return int(self._fixed("int16" if width == 2 else "int32"))

    def _fixed(self, kind: str) -> Any:
        packing = _PACKING[kind]
        self._need(packing.size)
        (value,) = packing.unpack_from(self.data, self.position)
        self.position += packing.size
        return value

    def _varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            self._need(1)
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 31:
                    raise _Malformed(f"varint must be below 2^31, got {value}")
                return value
        raise _Malformed("a varint of more than 5 bytes")

    def _need(self, size: int) -> None:
        if size > self.end - self.position:
            raise _Malformed(f"{size} bytes needed, {self.end - self.position} left")


class Writer:
    """Encode one message and keep the path of the current field."""

    def __init__(self, message: MessageType, version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = message.flexible(version)
        self.parts: list[Any] = []
        self.path: list[str] = []

    def encode(self, value: Message) -> list[Any]:
        """Return the parts of the message; records are parts of their own. Raises EncodeError."""
        try:
            self._struct(self.message.root, value)
        except (_Malformed, AttributeError, TypeError) as e:
            path = "".join(self.path).lstrip(".")
            raise EncodeError(self.message.name, self.version, path, str(e)) from None
        return self.parts

    def encode_struct(self, struct: StructType, source: Any) -> list[Any]:
        """Return the parts of a struct. Raises ValueError if the version cannot represent it."""
        try:
            self._struct(struct, source)
        except _Malformed as e:
            raise ValueError(str(e)) from None
        return self.parts

    def encode_tags(self, struct: StructType, source: Any) -> list[Any]:
        """Return the parts of the tagged fields of a struct. Raises ValueError if the version cannot represent them."""
        try:
            self._tags(struct, source)
        except _Malformed as e:
            raise ValueError(str(e)) from None
        return self.parts

    def _struct(self, struct: StructType, source: Any) -> None:
        for field in struct.fields:
            self.path.append("." + field.name)
            if field.since <= self.version <= field.until:
                if field.tag is None:
                    self._field(field, getattr(source, field.name))
            elif not field.ignorable and not self._is_default(field, getattr(source, field.name)):
                value = reprlib.repr(getattr(source, field.name))
                raise _Malformed(f"set to {value}, but version {self.version} has no such field")
            self.path.pop()
        if self.flexible:
            self._tags(struct, source)
        elif source.unknown_tags:
            raise _Malformed("unknown tagged fields, but this version has no tags")

    def _tags(self, struct: StructType, source: Any) -> None:
        tags: dict[int, list[Any]] = {}
        for tag, raw in source.unknown_tags:
            tags[tag] = [raw]
        for field in struct.tagged(self.version):
            value = getattr(source, field.name)
            if not self._is_default(field, value):
                before, self.parts = self.parts, []
                self.path.append("." + field.name)
                self._field(field, value)
                self.path.pop()
                assert field.tag is not None
                if field.tag in tags:
                    raise _Malformed(f"unknown tag {field.tag} is the known field {field.name}")
                tags[field.tag], self.parts = self.parts, before
        self._varint(len(tags))
        for tag, parts in sorted(tags.items()):
            self._varint(tag)
            self._varint(sum(map(len, parts)))
            self.parts += parts

    def _is_default(self, field: Field, value: Any) -> bool:
        if value is None:
            return field.default is None
        if field.default is ...:
            assert field.struct is not None
            return not value.unknown_tags and all(
                self._is_default(f, getattr(value, f.name)) for f in field.struct.fields
            )
        return bool(value == field.default)

    def _field(self, field: Field, value: Any) -> None:
        if not field.array:
            self._value(field, value, field.nullable(self.version))
        elif value is None:
            self._null(field, 4, field.nullable(self.version))
        else:
            self._length(field, len(value), 4)
            for i, element in enumerate(value):
                self.path.append(f"[{i}]")
                self._value(field, element, False)
                self.path.pop()

    def _value(self, field: Field, value: Any, nullable: bool) -> None:
        if field.struct is not None:
            if nullable:
                null = b"\xff" if field.tag is None else b"\x00"
                self.parts.append(null if value is None else b"\x01")
            if value is not None:
                self._struct(field.struct, value)
            elif not nullable:
                raise _Malformed("null where null is not allowed")
        elif field.type in FIXED:
            if field.type == "uuid" and len(value) != 16:
                raise _Malformed(f"a uuid of {len(value)} bytes, expected 16")
            try:
                self.parts.append(_PACKING[field.type].pack(value))
            except (PackingError, TypeError) as e:
                raise _Malformed(f"{value!r}: {e}") from None
        elif value is None:
            self._null(field, 2 if field.type == "string" else 4, nullable)
        elif field.type == "string":
            try:
                raw = value.encode()
            except (AttributeError, UnicodeEncodeError) as e:
                raise _Malformed(f"{value!r}: {e}") from None
            if len(raw) > MAX_STRING:
                raise _Malformed(f"a string of {len(raw)} bytes, at most {MAX_STRING} allowed")
            self._length(field, len(raw), 2)
            self.parts.append(raw)
        else:
            try:
                size = len(value)
            except TypeError as e:
                raise _Malformed(f"{value!r}: {e}") from None
            self._length(field, size, 4)
            self.parts.append(value)

    def _null(self, field: Field, width: int, nullable: bool) -> None:
        if not nullable:
            raise _Malformed("null where null is not allowed")
        self._length(field, -1, width)

    def _length(self, field: Field, length: int, width: int) -> None:
        if self.flexible and field.flexible:
            self._varint(length + 1)
        else:
            self.parts.append(_PACKING["int16" if width == 2 else "int32"].pack(length))

    def _varint(self, value: int) -> None:
        self.parts.append(varint(value))


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
