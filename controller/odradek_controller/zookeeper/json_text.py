"""The JSON of znodes: written as Kafka's brokers write it, and read with checks.

Owns the order of members. It matters to no reader; it is the order of Kafka, which iterates hash tables, so that tests
can compare our znodes with Kafka's. Leaves the members of each znode to `znodes` and `acl_znodes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

_INITIAL_BUCKETS = 16
_TYPE_NAMES: Mapping[type[Any], str] = {int: "integers", str: "strings", dict: "objects"}


class InvalidZnodeError(Exception):
    """A znode has data that its reader does not understand."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def in_hash_order(members: Mapping[str, Value], buckets: int = _INITIAL_BUCKETS) -> dict[str, Value]:
    """Return the members in the order of java.util.Properties, and of Scala's maps: hash tables with a load factor of
    3/4 and this initial number of buckets, a power of two."""
    while len(members) >= buckets * 3 // 4:
        buckets *= 2

    def place(name: str) -> tuple[int, int]:
        code = _hash(name)
        return code & (buckets - 1), code - (1 << 32) if code >> 31 else code

    return {name: members[name] for name in sorted(members, key=place)}


def _hash(name: str) -> int:
    """Return Java's hash of a string, with its upper half mixed into the lower one, as both hash tables do."""
    code = 0
    units = name.encode("utf-16-be")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code ^ (code >> 16)


class JsonObject:
    """A JSON object of a znode. Its methods raise InvalidZnodeError for missing members and wrong types."""

    def __init__(self, path: str, members: Any) -> None:
        if not isinstance(members, dict):
            raise InvalidZnodeError(path, f"{_excerpt(members)} is not a JSON object")
        self.path = path
        self.members: dict[str, Any] = members

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.members.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.invalid(name, "an integer")
        return value

    def text(self, name: str) -> str:
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self.invalid(name, "a string")
        return value

    def integer_in_string(self, name: str) -> int:
        """Return an integer that brokers write as a string, because JSON readers may round large numbers."""
        try:
            return int(self.text(name))
        except ValueError:
            raise self.invalid(name, "an integer in a string") from None

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._items(name, int))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._items(name, str))

    def objects(self, name: str) -> list[JsonObject]:
        return [JsonObject(self.path, item) for item in self._items(name, dict)]

    def object(self, name: str) -> JsonObject:
        """Return the object, or an empty one if the member is missing."""
        return JsonObject(self.path, self.members.get(name, {}))

    def invalid(self, name: str, expected: str) -> InvalidZnodeError:
        """Return the error of a member that is missing or not as expected."""
        found = _excerpt(self.members[name]) if name in self.members else "nothing"
        return InvalidZnodeError(self.path, f"{name!r} must be {expected}, got {found}")

    def _items(self, name: str, kind: type[Any]) -> list[Any]:
        items = self.members.get(name)
        if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
            raise self.invalid(name, f"a list of {_TYPE_NAMES[kind]}")
        return items


def decode(path: str, data: bytes) -> JsonObject:
    """Return the JSON object of a znode. Raises InvalidZnodeError."""
    try:
        return JsonObject(path, json.loads(data))
    except ValueError as error:
        raise InvalidZnodeError(path, f"{_excerpt(data)} is not JSON: {error}") from None


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
