"""The JSON of znodes: written as Kafka's brokers write it, and read with checks.

The order of members does not matter to any reader. It is that of Kafka, which iterates hash tables, so that tests can
compare our znodes with Kafka's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

_INITIAL_BUCKETS = 16


class InvalidZnodeError(Exception):
    """A znode has unexpected data."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def as_hashed(members: Mapping[str, Value], buckets: int = _INITIAL_BUCKETS) -> dict[str, Value]:
    """Return the members in the order of a hash table with this initial number of buckets and a load factor of 3/4.

    `buckets` is a power of two. Kafka writes configurations from java.util.Properties, and topics from Scala's maps.
    """
    while len(members) >= buckets * 3 // 4:
        buckets *= 2

    def place(name: str) -> tuple[int, int]:
        code = _hash(name)
        return code & (buckets - 1), code - (1 << 32) if code >> 31 else code

    return {name: members[name] for name in sorted(members, key=place)}


def _hash(name: str) -> int:
    """Return Java's hash of a string; like both hash tables, mix its upper half into the lower one."""
    code = 0
    units = name.encode("utf-16-be")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code ^ (code >> 16)


class Members:
    """A JSON object of a znode. Its methods raise InvalidZnodeError for missing members and wrong types."""

    def __init__(self, path: str, members: Any) -> None:
        if not isinstance(members, dict):
            raise InvalidZnodeError(path, f"{_shown(members)} is not a JSON object")
        self.path = path
        self.members: dict[str, Any] = members

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.members.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "a whole number")
        return value

    def text(self, name: str) -> str:
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def number_in_text(self, name: str) -> int:
        """Return a number of 64 bits. Brokers write it as a string, because JSON readers may round a number."""
        try:
            return int(self.text(name))
        except ValueError:
            raise self.wrong(name, "a whole number in a text") from None

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._items(name, int))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._items(name, str))

    def objects(self, name: str) -> list[Members]:
        return [Members(self.path, item) for item in self._items(name, dict)]

    def object(self, name: str) -> Members:
        """Return the object, or an empty one if the member is missing."""
        return Members(self.path, self.members.get(name, {}))

    def wrong(self, name: str, expected: str) -> InvalidZnodeError:
        found = _shown(self.members[name]) if name in self.members else "nothing"
        return InvalidZnodeError(self.path, f"{name!r} must be {expected}, got {found}")

    def _items(self, name: str, kind: type[Any]) -> list[Any]:
        items = self.members.get(name)
        if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
            raise self.wrong(name, f"a list of {kind.__name__}")
        return items


def decode(path: str, data: bytes) -> Members:
    """Return the JSON object of a znode. Raises InvalidZnodeError."""
    try:
        return Members(path, json.loads(data))
    except ValueError as error:
        raise InvalidZnodeError(path, f"{_shown(data)} is not JSON: {error}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
