"""Every partition hosted by this broker.

Owns the lookup by name and by topic id. Leaves creating, leading and deleting them, which only metadata deltas may
cause, to `replica_manager.py`, and what a partition is to `partition.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from odradek_broker.replication.partition import Partition

if TYPE_CHECKING:
    from odradek_wire.uuid import Uuid


class Cache(Protocol):
    """Whatever can be emptied."""

    def clear(self) -> None: ...


class Partitions:
    """Keyed by (topic name, index); a topic id is resolved to its partitions, since state that dies with a topic
    belongs to the id."""

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
        """A cache that holds partitions is emptied, once, when the next partition goes: it keeps none that is gone,
        and its look-ups pay nothing for that. Idempotent."""
        if not any(each is cache for each in self._caches):
            self._caches.append(cache)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)
