"""One committed offset, and the group and partition that it belongs to."""

from __future__ import annotations

from typing import NamedTuple

from odradek_wire.uuid import ZERO_UUID, Uuid


class GroupTopicPartition(NamedTuple):
    """The key of a committed offset: a group and a partition."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """The value of a committed offset. Times are on the wall clock."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Set if the client requested a retention (OffsetCommit up to v4); it replaces offsets.retention.minutes."""
    topic_id: Uuid
    """Zero when the record has none."""
    order: int
    """The position among all replayed offsets: an offset with a later record in the log has a higher one."""

    def is_of(self, topic_id: Uuid) -> bool:
        """Whether the offset was committed for this topic, not for a deleted one of the same name."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id
