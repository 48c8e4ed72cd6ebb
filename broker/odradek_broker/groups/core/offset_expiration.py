"""The expiration of committed offsets, and of groups without members and offsets (offsets.retention.minutes, KIP-211).

Owns the rules. Leaves the interval to the shell, and the effect of tombstones to `replay`.
"""

from __future__ import annotations

from odradek_broker.groups.core.committed_offset import CommittedOffset
from odradek_broker.groups.core.group import Group, OffsetExpirationCondition
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.offset_store import OffsetStore


def expire(store: OffsetStore, group: Group, retention_ms: int, wall_ms: int) -> list[CoordinatorRecord]:
    """Return tombstones for the offsets whose retention is over, and for the group if it has no members and no offset
    is left.

    An offset does not expire while the group subscribes to its topic, or while an open transaction has a pending offset
    for the same partition.
    """
    if not group.should_expire:
        return []
    topics = store.of_group(group.group_id)
    condition = group.offset_expiration_condition()
    if topics and condition is None:
        return []
    records: list[CoordinatorRecord] = []
    left = 0
    for topic, partitions in topics.items():
        subscribed = group.is_subscribed_to(topic)
        for partition, offset in partitions.items():
            unstable = store.pending.is_pending(group.group_id, topic, partition)
            if not subscribed and not unstable and _has_expired(offset, condition, retention_ms, wall_ms):
                records.append(OffsetRecord(group.group_id, topic, partition, None))
            else:
                left += 1
    if not left and group.is_empty and not store.pending.has_group(group.group_id):
        records.extend(group.tombstones())
    return records


def _has_expired(
    offset: CommittedOffset, condition: OffsetExpirationCondition | None, retention_ms: int, wall_ms: int
) -> bool:
    if offset.expire_timestamp_ms is not None:
        return wall_ms >= offset.expire_timestamp_ms
    return condition is not None and wall_ms - condition(offset) >= retention_ms
