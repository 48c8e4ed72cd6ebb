"""Hashes as the JVM computes them, where Kafka's behaviour depends on them.

Owns `String.hashCode` (a group's partition) and the order in which a small `HashMap` is iterated (ties between
protocols).
"""

from __future__ import annotations

from collections.abc import Iterable

HASH_MAP_CAPACITY = 16
"""Of a HashMap with at most 12 entries; larger ones do not occur where the order matters."""


def string_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def non_negative(value: int) -> int:
    """Kafka's `Utils.abs`: the smallest integer, whose negation overflows, becomes 0."""
    return 0 if value == -(1 << 31) else abs(value)


def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that keeps `key`: a group in `__consumer_offsets`, for example."""
    return non_negative(string_hash(key)) % partitions


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The keys as a Java HashMap would iterate them: by bucket, and by insertion within one."""

    def bucket(key: str) -> int:
        unsigned = string_hash(key) & 0xFFFFFFFF
        return (unsigned ^ unsigned >> 16) & (HASH_MAP_CAPACITY - 1)

    return sorted(keys, key=bucket)
