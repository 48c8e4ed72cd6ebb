"""One committed offset: of which group, where, and what is kept of it."""

from __future__ import annotations

from typing import NamedTuple

from odradek_wire.uuid import ZERO_UUID, Uuid


class GroupTopicPartition(NamedTuple):
    """A group's position in one partition."""

    group_id: str
    topic: str
    partition: int


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
    order: int
    """Grows as records do in the log: of two offsets, the later has the higher one."""

    def is_of(self, topic_id: Uuid) -> bool:
        """Was it committed for this topic, and not for a predecessor of the same name?"""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id
