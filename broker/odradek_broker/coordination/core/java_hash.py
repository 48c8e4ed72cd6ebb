"""Hashes as the JVM computes them, where Kafka's behaviour depends on them.

Owns `String.hashCode` (the partition of a group) and the iteration order of a small `HashMap` (ties between protocols).
"""

from __future__ import annotations

from collections.abc import Iterable

HASH_MAP_CAPACITY = 16
"""The capacity of a HashMap with at most 12 entries; larger maps do not occur where the order matters."""


def string_hash(text: str) -> int:
    """Return `String.hashCode`: over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def non_negative(value: int) -> int:
    """Return Kafka's `Utils.abs`: 0 for the smallest integer, whose negation overflows."""
    return 0 if value == -(1 << 31) else abs(value)


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of an internal topic for a key, such as a group id in `__consumer_offsets`."""
    return non_negative(string_hash(key)) % partitions


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return the keys in the iteration order of a Java HashMap: by bucket, then by insertion."""

    def bucket(key: str) -> int:
        unsigned = string_hash(key) & 0xFFFFFFFF
        return (unsigned ^ unsigned >> 16) & (HASH_MAP_CAPACITY - 1)

    return sorted(keys, key=bucket)
