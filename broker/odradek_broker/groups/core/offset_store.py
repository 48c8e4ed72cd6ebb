"""Committed offsets of the groups of one `__consumer_offsets` partition.

Owns their storage, and how a replayed record or the end of a transaction changes them. Leaves requests to
`offset_requests`, and expiration to `offset_expiration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition
from odradek_broker.groups.core.pending_offsets import PendingTransactionalOffsets
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.records.attributes import NO_PRODUCER_ID

NO_OFFSETS: Mapping[str, Mapping[int, CommittedOffset]] = {}


class OffsetStore:
    """Committed and pending offsets. Only `replay` and `end_transaction` change them, in the order of the log."""

    __slots__ = ("_by_group", "_replayed", "pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        """Group id → topic → partition → committed offset."""
        self._replayed = 0
        self.pending = PendingTransactionalOffsets()

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._by_group.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> Iterator[GroupTopicPartition]:
        """Yield the key of every offset in this topic, also of pending ones."""
        for group_id, topics in self._by_group.items():
            for partition in topics.get(topic, ()):
                yield GroupTopicPartition(group_id, topic, partition)
        for key in self.pending.of_topic(topic):
            if self.get(*key) is None:
                yield key

    def replay(
        self,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Store an offset, as pending if it has a producer id. None deletes it, also from all open transactions."""
        key = GroupTopicPartition(group_id, topic, partition)
        if value is None:
            self._remove(group_id, topic, partition)
            self.pending.delete(key)
            return
        self._replayed += 1
        expire_ms = value.expire_timestamp
        offset = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if expire_ms == -1 else expire_ms,
            value.topic_id,
            self._replayed,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(key, offset)
        else:
            self.pending.add(producer_id, key, offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the producer's pending offsets. A committed offset with a later record in the log stays."""
        for key, offset in self.pending.take(producer_id).items():
            committed = self.get(*key)
            if commit and (committed is None or committed.order < offset.order):
                self._put(key, offset)

    def _put(self, key: GroupTopicPartition, offset: CommittedOffset) -> None:
        self._by_group.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = offset

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)
