"""Committed offsets of the groups of one `__consumer_offsets` partition.

Owns where they are kept and how a replayed record, or the end of a transaction, changes them. Leaves who may commit and
what a fetch answers to `offset_requests`, and when an offset has had its day to `offset_expiration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition
from odradek_broker.groups.core.pending_offsets import PendingTransactionalOffsets
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.records.attributes import NO_PRODUCER_ID

NO_OFFSETS: Mapping[str, Mapping[int, CommittedOffset]] = {}


class OffsetStore:
    """group id → topic → partition → offset, and beside them what is pending. Changed by `replay` and
    `end_transaction` alone, in the order of the log."""

    __slots__ = ("_by_group", "_replayed", "pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._replayed = 0
        self.pending = PendingTransactionalOffsets()

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._by_group.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> Iterator[GroupTopicPartition]:
        """Every offset committed for this topic, by open transactions too."""
        for group_id, topics in self._by_group.items():
            for partition in topics.get(topic, ()):
                yield GroupTopicPartition(group_id, topic, partition)
        for where in self.pending.of_topic(topic):
            if self.get(*where) is None:
                yield where

    def replay(
        self,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """With a producer, the offset is part of its open transaction. None deletes, for all transactions too."""
        where = GroupTopicPartition(group_id, topic, partition)
        if value is None:
            self._remove(group_id, topic, partition)
            self.pending.forget(where)
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
            self._put(where, offset)
        else:
            self.pending.add(producer_id, where, offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The producer's pending offsets are committed, but for those to which a later record was committed meanwhile;
        or are dropped."""
        for where, offset in self.pending.take(producer_id).items():
            there = self.get(*where)
            if commit and (there is None or there.order < offset.order):
                self._put(where, offset)

    def _put(self, where: GroupTopicPartition, offset: CommittedOffset) -> None:
        self._by_group.setdefault(where.group_id, {}).setdefault(where.topic, {})[where.partition] = offset

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)
