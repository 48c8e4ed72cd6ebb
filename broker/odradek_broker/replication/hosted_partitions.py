"""The partitions that this broker hosts, by topic name and by topic id.

Leaves creating and deleting partitions, which only metadata deltas cause, to `replica_manager.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from odradek_broker.replication.partition import Partition

if TYPE_CHECKING:
    from odradek_wire.uuid import Uuid


class Cache(Protocol):
    """A cache that can be emptied."""

    def clear(self) -> None: ...


class Partitions:
    """The partitions, keyed by (topic name, index) and by (topic id, index)."""

    __slots__ = ("_by_id", "_by_name", "_caches")

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._caches: list[Cache] = []

    def get(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def get_by_id(self, topic_id: Uuid, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def of_topic(self, topic: str) -> list[Partition]:
        return sorted((p for (name, _), p in self._by_name.items() if name == topic), key=lambda p: p.index)

    def add(self, partition: Partition) -> None:
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[partition.topic_id, partition.index] = partition

    def remove(self, partition: Partition) -> None:
        del self._by_id[partition.topic_id, partition.index]
        if self._by_name.get((partition.topic, partition.index)) is partition:
            del self._by_name[partition.topic, partition.index]
        for cache in self._caches:
            cache.clear()
        self._caches.clear()

    def clear_at_removal(self, cache: Cache) -> None:
        """Clear the cache once, when the next partition is removed, so that it never has a removed partition and its
        look-ups need no check. Idempotent."""
        if not any(each is cache for each in self._caches):
            self._caches.append(cache)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)
