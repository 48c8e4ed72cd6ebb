"""Offsets in transactions that are still open.

Owns them by producer and by group. Leaves committing them, when their transaction ends, to `offset_store`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition


class PendingTransactionalOffsets:
    """The pending offsets by producer, and the producers by group. No entry of either index is empty."""

    __slots__ = ("_by_producer", "_producers_by_group")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[GroupTopicPartition, CommittedOffset]] = {}
        self._producers_by_group: dict[str, dict[GroupTopicPartition, set[int]]] = {}
        """Group id → key → the producers with a pending offset for the key."""

    def add(self, producer_id: int, key: GroupTopicPartition, offset: CommittedOffset) -> None:
        """Store an offset; a later one of the same transaction replaces it."""
        self._by_producer.setdefault(producer_id, {})[key] = offset
        self._producers_by_group.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def delete(self, key: GroupTopicPartition) -> None:
        """Delete the offset from all open transactions."""
        for producer_id in self._producers_by_group.get(key.group_id, {}).get(key, ()):
            offsets = self._by_producer[producer_id]
            del offsets[key]
            if not offsets:
                del self._by_producer[producer_id]
        self._discard(key)

    def take(self, producer_id: int) -> dict[GroupTopicPartition, CommittedOffset]:
        """Remove and return the offsets of the producer's transaction, which has ended."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            producers = self._producers_by_group[key.group_id][key]
            producers.discard(producer_id)
            if not producers:
                self._discard(key)
        return offsets

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        keys = self._producers_by_group.get(group_id)
        return keys is not None and GroupTopicPartition(group_id, topic, partition) in keys

    def has_group(self, group_id: str) -> bool:
        return group_id in self._producers_by_group

    def of_group(self, group_id: str) -> Iterator[GroupTopicPartition]:
        yield from self._producers_by_group.get(group_id, ())

    def of_topic(self, topic: str) -> Iterator[GroupTopicPartition]:
        for keys in self._producers_by_group.values():
            for key in keys:
                if key.topic == topic:
                    yield key

    def _discard(self, key: GroupTopicPartition) -> None:
        keys = self._producers_by_group.get(key.group_id, {})
        keys.pop(key, None)
        if not keys:
            self._producers_by_group.pop(key.group_id, None)
