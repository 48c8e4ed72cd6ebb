"""The expiration of offsets and of empty groups (KIP-211)."""

from __future__ import annotations

import struct

from broker.tests.groups import shards
from broker.tests.groups.shards import new_shard

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember
from odradek_broker.groups.core.group_records import GroupMetadataRecord, OffsetRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import GroupSettings
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_commit_value import OffsetCommitValue

RETENTION_MS = 1000


def shard_with_offsets(*topics: str, expire_ms: int = -1) -> GroupShard:
    """Group g has an offset, committed at 100, in partition 0 of each topic."""
    shard = new_shard(GroupSettings(offsets_retention_ms=RETENTION_MS))
    for topic in topics:
        shard.replay(OffsetRecord("g", topic, 0, OffsetCommitValue(5, -1, "", 100, expire_ms)))
    return shard


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)


def classic(shard: GroupShard) -> ClassicGroup:
    group = shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def stable_group(shard: GroupShard, protocol_type: str, *topics: str) -> None:
    group = ClassicGroup("g", 100)
    member = ClassicGroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(("range", subscription(*topics)),),
    )
    group.add(member, protocol_type)
    group.transition(ClassicGroupState.PREPARING_REBALANCE, 100)
    group.next_generation(100)
    group.state = ClassicGroupState.STABLE
    shard.groups["g"] = group


def test_offsets_of_a_simple_group_expire_one_by_one_then_the_group() -> None:
    shard = shard_with_offsets("a", "b")
    shard.replay(OffsetRecord("g", "b", 0, OffsetCommitValue(5, -1, "", 600)))
    assert shard.expire_offsets(1099) == []
    assert shard.expire_offsets(1100) == [OffsetRecord("g", "a", 0, None)]
    assert shard.expire_offsets(1600) == [
        OffsetRecord("g", "a", 0, None),
        OffsetRecord("g", "b", 0, None),
        GroupMetadataRecord("g", None),
    ]


def test_replaying_the_tombstones_deletes_offsets_and_group() -> None:
    shard = shard_with_offsets("a")
    for record in shard.expire_offsets(5000):
        shard.replay(record)
    assert (shard.groups, shard.offsets.of_group("g")) == ({}, {})


def test_retention_counts_from_when_the_group_became_empty() -> None:
    shard = shard_with_offsets("a")
    classic(shard).protocol_type = "consumer"
    classic(shard).current_state_timestamp_ms = 5000
    classic(shard).compute_subscribed_topics()
    assert shard.expire_offsets(5999) == []
    assert shard.expire_offsets(6000) == [OffsetRecord("g", "a", 0, None), GroupMetadataRecord("g", None)]


def test_a_stable_group_keeps_offsets_of_subscribed_topics() -> None:
    shard = shard_with_offsets("a", "b")
    stable_group(shard, "consumer", "a")
    assert shard.expire_offsets(10**15) == [OffsetRecord("g", "b", 0, None)]


def test_nothing_expires_while_subscriptions_are_unknown() -> None:
    shard = shard_with_offsets("a")
    stable_group(shard, "connect", "b")
    assert shard.expire_offsets(10**15) == []


def test_nothing_expires_during_a_rebalance() -> None:
    shard = shard_with_offsets("a")
    stable_group(shard, "consumer", "b")
    classic(shard).transition(ClassicGroupState.PREPARING_REBALANCE, 100)
    assert shard.expire_offsets(10**15) == []


def test_an_offset_with_an_expire_timestamp_expires_then() -> None:
    shard = shard_with_offsets("a", expire_ms=9000)
    assert shard.expire_offsets(8999) == []
    assert shard.expire_offsets(9000) == [OffsetRecord("g", "a", 0, None), GroupMetadataRecord("g", None)]


def test_the_retention_of_an_old_commit_becomes_its_expire_timestamp() -> None:
    shard = shard_with_offsets()
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("a", partitions=[partition])
    result = shards.commit(shard, OffsetCommitRequest("g", retention_time_ms=50, topics=[topic]), 2, Instant(100, 0))
    assert isinstance(result, tuple)
    assert result[0] == [OffsetRecord("g", "a", 0, OffsetCommitValue(5, -1, "", 100, 150))]


def test_deleting_topics_deletes_their_offsets_but_not_the_group() -> None:
    shard = shard_with_offsets("a", "b")
    records = shard.delete_offsets_of_topics(["a"])
    assert records == [OffsetRecord("g", "a", 0, None)]
    shard.replay(records[0])
    assert list(shard.offsets.of_group("g")) == ["b"]
    assert list(shard.groups) == ["g"]
