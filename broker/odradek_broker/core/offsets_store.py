"""Committed offsets of the groups of one `__consumer_offsets` partition.

Owns where they are kept and how a replayed record changes them. Leaves who may commit and what a fetch answers to
`offsets`, and when an offset has had its day to `offsets_expiration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.uuid import ZERO_UUID, Uuid


class CommittedOffset(NamedTuple):
    """What a group said about a partition, and when (wall clock)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Set only by clients before OffsetCommit v5; then it alone decides."""
    topic_id: Uuid
    """Zero when the record does not tell."""

    def is_of(self, topic_id: Uuid) -> bool:
        """Was it committed for this topic, and not for a predecessor of the same name?"""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


NO_OFFSETS: Mapping[str, Mapping[int, CommittedOffset]] = {}


class OffsetStore:
    """group id → topic → partition → offset. Changed by `replay` alone."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._by_group.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Group and partition of every offset committed for this topic."""
        for group_id, topics in self._by_group.items():
            for partition in topics.get(topic, ()):
                yield group_id, partition

    def replay(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._remove(group_id, topic, partition)
            return
        expire_ms = value.expire_timestamp
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if expire_ms == -1 else expire_ms,
            value.topic_id,
        )

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)
