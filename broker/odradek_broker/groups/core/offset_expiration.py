"""When committed offsets, and groups that have nothing else, are forgotten (offsets.retention.minutes, KIP-211).

Owns the rules. Leaves how often they are applied to the shell, and the tombstones' effect to `replay`.
"""

from __future__ import annotations

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.committed_offset import CommittedOffset
from odradek_broker.groups.core.group_records import CoordinatorRecord, GroupMetadataRecord, OffsetRecord
from odradek_broker.groups.core.offset_store import OffsetStore


def expire(store: OffsetStore, group: ClassicGroup, retention_ms: int, wall_ms: int) -> list[CoordinatorRecord]:
    """Tombstones for offsets that are past their time, and for the group when it is empty and none is left.

    - An empty group's offsets expire together, counted from the moment when it became empty.
    - A stable consumer group's offsets expire for topics that nobody subscribes to any more, each from its last commit.
    - Offsets of a simple group (nobody ever joined it) expire each from its last commit.
    - Nothing expires during a rebalance, or when the subscriptions are not known.
    - While a transaction that is open has an offset for a partition, that partition's stays; and so does the group.
    """
    topics = store.of_group(group.group_id)
    records: list[CoordinatorRecord] = []
    left = 0
    if topics and not _may_expire(group):
        return records
    for topic, partitions in topics.items():
        subscribed = group.is_subscribed_to(topic)
        for partition, offset in partitions.items():
            unstable = store.pending.is_pending(group.group_id, topic, partition)
            if not subscribed and not unstable and _is_over(group, offset, retention_ms, wall_ms):
                records.append(OffsetRecord(group.group_id, topic, partition, None))
            else:
                left += 1
    if not left and group.is_empty and not store.pending.has_group(group.group_id):
        records.append(GroupMetadataRecord(group.group_id, None))
    return records


def _may_expire(group: ClassicGroup) -> bool:
    if group.protocol_type is None or group.is_empty:
        return True
    return group.subscribed_topics is not None and group.is_in(ClassicGroupState.STABLE)


def _is_over(group: ClassicGroup, offset: CommittedOffset, retention_ms: int, wall_ms: int) -> bool:
    if offset.expire_timestamp_ms is not None:
        return wall_ms >= offset.expire_timestamp_ms
    since_ms = offset.commit_timestamp_ms
    if group.protocol_type is not None and group.is_empty and group.state_since_ms is not None:
        since_ms = group.state_since_ms
    return wall_ms - since_ms >= retention_ms
