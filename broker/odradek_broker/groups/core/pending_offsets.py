"""Offsets that were committed in transactions which are still open.

Owns whose they are, and which group's partitions are unstable because of them. Leaves what becomes of them when their
transaction ends to `offset_store`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition


class PendingTransactionalOffsets:
    """By producer, and by group. Nothing empty is kept."""

    __slots__ = ("_by_producer", "_producers")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[GroupTopicPartition, CommittedOffset]] = {}
        self._producers: dict[str, dict[GroupTopicPartition, set[int]]] = {}
        """Group id → where → whose transactions have an offset there."""

    def add(self, producer_id: int, where: GroupTopicPartition, offset: CommittedOffset) -> None:
        """A transaction may commit an offset more than once: the last counts."""
        self._by_producer.setdefault(producer_id, {})[where] = offset
        self._producers.setdefault(where.group_id, {}).setdefault(where, set()).add(producer_id)

    def forget(self, where: GroupTopicPartition) -> None:
        """The offset is deleted: no transaction brings it back."""
        for producer_id in self._producers.get(where.group_id, {}).get(where, ()):
            offsets = self._by_producer[producer_id]
            del offsets[where]
            if not offsets:
                del self._by_producer[producer_id]
        self._discard(where)

    def take(self, producer_id: int) -> dict[GroupTopicPartition, CommittedOffset]:
        """The producer's transaction is over: what it has committed is pending no more."""
        offsets = self._by_producer.pop(producer_id, {})
        for where in offsets:
            producers = self._producers[where.group_id][where]
            producers.discard(producer_id)
            if not producers:
                self._discard(where)
        return offsets

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        places = self._producers.get(group_id)
        return places is not None and GroupTopicPartition(group_id, topic, partition) in places

    def has_group(self, group_id: str) -> bool:
        return group_id in self._producers

    def of_group(self, group_id: str) -> Iterator[GroupTopicPartition]:
        yield from self._producers.get(group_id, ())

    def of_topic(self, topic: str) -> Iterator[GroupTopicPartition]:
        for places in self._producers.values():
            for where in places:
                if where.topic == topic:
                    yield where

    def _discard(self, where: GroupTopicPartition) -> None:
        places = self._producers.get(where.group_id, {})
        places.pop(where, None)
        if not places:
            self._producers.pop(where.group_id, None)
