"""Every partition hosted by this broker.

Owns the lookup by name and by topic id. Leaves creating, leading and deleting them, which only metadata deltas may
cause, to `broker.py`, and what a partition is to `partition.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek_broker.partition import Partition

if TYPE_CHECKING:
    from odradek_wire.uuid import Uuid


class Partitions:
    """Keyed by (topic name, index); a topic id is resolved to its partitions, since state that dies with a topic
    belongs to the id."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}

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

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)
