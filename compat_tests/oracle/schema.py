"""Messages as dictionaries, encoded and decoded by interpreting their definitions: slow, small, and independent.

Names are Kafka's in snake_case. A field that a version lacks is left out when encoding, so one dictionary serves all
versions; a field that the dictionary lacks gets Kafka's default. Strings are str, uuids 16 bytes.
"""

import json
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

_FACTS = Path(__file__).parents[2] / "wire" / "tests" / "facts"
KAFKA_4_3, KAFKA_3_9 = "4.3.0", "3.9.1"
_ENDLESS = 1 << 15

_FIXED = {
    "bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I",
    "int64": ">q", "float64": ">d",
}  # fmt: skip

Body = dict[str, Any]


class Malformed(Exception):
    """The bytes are not a valid message of the expected type."""


@cache
def facts(release: str) -> dict[str, Any]:
    """Return the definitions of one release's messages."""
    known: dict[str, Any] = json.loads((_FACTS / f"kafka-{release}.json").read_text())
    return known


@cache
def span(text: str) -> range:
    """Parse a version range in Kafka's notation ("3-9", "4+", "2", "none")."""
    if text in ("none", ""):
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _ENDLESS)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def versions(api: str, release: str) -> range:
    """Return the versions of an API that a release supports."""
    request = facts(release).get(f"{api}Request")
    return span(request["versions"]) if request else range(0)


def release_for(api: str, version: int) -> str:
    """Return the newest release that supports a version of an API."""
    return KAFKA_4_3 if version in versions(api, KAFKA_4_3) else KAFKA_3_9


def api_key(api: str) -> int:
    """Return the key of an API."""
    release = KAFKA_4_3 if f"{api}Request" in facts(KAFKA_4_3) else KAFKA_3_9
    return int(facts(release)[f"{api}Request"]["key"])


def encode(name: str, version: int, body: Body, release: str) -> bytes:
    """Return the message's bytes, without header and length."""
    message = facts(release)[name]
    flexible = version in span(message["flexible"])
    return _Writer(message.get("structs", {}), version, flexible).struct(message["fields"], body)


def decode(name: str, version: int, data: bytes, release: str) -> Body:
    """Return the message as a dictionary; raise an error if bytes are left over."""
    message = facts(release)[name]
    flexible = version in span(message["flexible"])
    reader = _Reader(message.get("structs", {}), version, flexible, data)
    body = reader.struct(message["fields"])
    if reader.position != len(data):
        raise Malformed(f"{name} {version}: {len(data) - reader.position} bytes are left over")
    return body


def is_flexible(name: str, version: int, release: str) -> bool:
    """Return whether that version has compact lengths and tagged fields."""
    return version in span(facts(release)[name]["flexible"])


@cache
def snake(name: str) -> str:
    """Convert ErrorCode to error_code."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _default(field: dict[str, Any], version: int) -> Any:
    text, kind = field.get("default"), field["type"]
    if text == "null":
        return None if version in span(field.get("nullable", "none")) else _zero(field, kind)
    if text is None:
        return _zero(field, kind)
    if kind == "bool":
        return text in (True, "true")
    if kind == "string":
        return text
    return float(text) if kind == "float64" else int(str(text), 0)


def _zero(field: dict[str, Any], kind: str) -> Any:
    if kind.startswith("[]"):
        return []
    empty = {"string": "", "bytes": b"", "records": None, "uuid": bytes(16), "bool": False, "float64": 0.0}
    if kind in empty:
        return empty[kind]
    return 0 if kind in _FIXED else {}


class _Walk:
    def __init__(self, structs: dict[str, Any], version: int, flexible: bool) -> None:
        self.structs, self.version, self.flexible = structs, version, flexible

    def fields_of(self, field: dict[str, Any], kind: str) -> list[dict[str, Any]]:
        """Return the fields of a struct, which is defined in place or by name."""
        inline: list[dict[str, Any]] | None = field.get("fields")
        return inline if inline is not None else self.structs[kind]["fields"]

    def present(self, field: dict[str, Any]) -> bool:
        return self.version in span(field.get("versions", field.get("tagged", "0+")))

    def tagged(self, field: dict[str, Any]) -> bool:
        return self.flexible and self.version in span(field.get("tagged", "none"))

    def nullable(self, field: dict[str, Any]) -> bool:
        return self.version in span(field.get("nullable", "none"))

    def compact(self, field: dict[str, Any]) -> bool:
        return self.flexible and field.get("flexible") != "none"


class _Writer(_Walk):
    def struct(self, fields: list[dict[str, Any]], body: Body) -> bytes:
        unknown = set(body) - {snake(field["name"]) for field in fields}
        if unknown:
            raise KeyError(f"no such fields: {unknown}")
        out, tags = b"", []
        for field in fields:
            if not self.present(field):
                continue
            default = _default(field, self.version)
            value = body.get(snake(field["name"]), default)
            if not self.tagged(field):
                out += self.value(field, field["type"], value)
            elif value != default:
                tags.append((field["tag"], self.value(field, field["type"], value)))
        if self.flexible:
            out += _uvarint(len(tags))
            for tag, data in sorted(tags):
                out += _uvarint(tag) + _uvarint(len(data)) + data
        return out

    def value(self, field: dict[str, Any], kind: str, value: Any) -> bytes:
        if kind in _FIXED:
            return struct.pack(_FIXED[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind == "string":
            return self.sized(field, None if value is None else value.encode(), ">h")
        if kind in ("bytes", "records"):
            return self.sized(field, value, ">i")
        if kind.startswith("[]"):
            if value is None:
                return b"\x00" if self.compact(field) else struct.pack(">i", -1)
            count = _uvarint(len(value) + 1) if self.compact(field) else struct.pack(">i", len(value))
            element = {**field, "nullable": "none"}
            return count + b"".join(self.value(element, kind[2:], each) for each in value)
        if self.nullable(field):
            return b"\xff" if value is None else b"\x01" + self.struct(self.fields_of(field, kind), value)
        return self.struct(self.fields_of(field, kind), value)

    def sized(self, field: dict[str, Any], data: bytes | None, length: str) -> bytes:
        if self.compact(field):
            return b"\x00" if data is None else _uvarint(len(data) + 1) + data
        return struct.pack(length, -1) if data is None else struct.pack(length, len(data)) + data


class _Reader(_Walk):
    def __init__(self, structs: dict[str, Any], version: int, flexible: bool, data: bytes) -> None:
        super().__init__(structs, version, flexible)
        self.data, self.position = data, 0

    def struct(self, fields: list[dict[str, Any]]) -> Body:
        body: Body = {}
        here = [field for field in fields if self.present(field)]
        for field in here:
            if self.tagged(field):
                body[snake(field["name"])] = _default(field, self.version)
            else:
                body[snake(field["name"])] = self.value(field, field["type"])
        if self.flexible:
            by_tag = {field["tag"]: field for field in here if self.tagged(field)}
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                end = self.position + size
                if tag not in by_tag:
                    raise Malformed(f"unknown tag {tag}")
                body[snake(by_tag[tag]["name"])] = self.value(by_tag[tag], by_tag[tag]["type"])
                if self.position != end:
                    raise Malformed(f"tag {tag} is not as long as it says")
        return body

    def value(self, field: dict[str, Any], kind: str) -> Any:
        if kind in _FIXED:
            return self.fixed(_FIXED[kind])
        if kind == "uuid":
            return self.take(16)
        if kind == "string":
            data = self.sized(field, ">h")
            return None if data is None else data.decode()
        if kind in ("bytes", "records"):
            return self.sized(field, ">i")
        if kind.startswith("[]"):
            count = self.uvarint() - 1 if self.compact(field) else self.fixed(">i")
            if count < 0:
                return None
            element = {**field, "nullable": "none"}
            return [self.value(element, kind[2:]) for _ in range(count)]
        if self.nullable(field) and self.fixed(">b") < 0:
            return None
        return self.struct(self.fields_of(field, kind))

    def sized(self, field: dict[str, Any], length: str) -> bytes | None:
        size = self.uvarint() - 1 if self.compact(field) else self.fixed(length)
        return None if size < 0 else self.take(size)

    def fixed(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def take(self, size: int) -> bytes:
        piece = self.data[self.position : self.position + size]
        if len(piece) < size:
            raise Malformed("ends too early")
        self.position += size
        return piece

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _uvarint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
