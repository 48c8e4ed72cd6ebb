"""Offsets in transactions: the checks of a commit, when offsets become visible, and how they are deleted before."""

from __future__ import annotations

import pytest
from broker.tests.groups import shards
from broker.tests.groups.shards import NOW, committed, join_request, new_shard

from odradek_broker.groups.core.foreign_group import ForeignGroup, ForeignRecord
from odradek_broker.groups.core.group_records import GroupMetadataRecord, OffsetRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Commit = TxnOffsetCommitRequest
Fetch = OffsetFetchRequest.OffsetFetchRequestGroup
PRODUCER, OTHER = 7, 8
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def shard() -> GroupShard:
    return new_shard(GroupSettings(offsets_retention_ms=1000, offset_metadata_max_bytes=4))


def request(offset: int = 5, producer: int = PRODUCER, topic: str = "t", metadata: str | None = "") -> Commit:
    partition = Commit.TxnOffsetCommitRequestPartition(0, offset, 3, metadata)
    return Commit("x", "g", producer, 0, topics=[Commit.TxnOffsetCommitRequestTopic(topic, [partition])])


def commit(shard: GroupShard, request: Commit) -> ErrorCode:
    """Write immediately; return the error of the only partition, or of the whole request."""
    result = shard.commit_in_transaction(request, 5, NOW)
    if isinstance(result, ErrorCode):
        return result
    records, response = result
    for record in records:
        shard.replay(record)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def commit_plainly(shard: GroupShard, offset: int, topic: str = "t") -> None:
    shard.replay(OffsetRecord("g", topic, 0, OffsetCommitValue(offset, -1, "", NOW.wall_ms)))


def seen(shard: GroupShard, *, stable: bool = False, everything: bool = False) -> list[tuple[str, int, int]]:
    """Return topic, offset and error from an OffsetFetch of partition 0 of t and u, or of all offsets."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("t", "u")]
    fetched = shard.fetch(Fetch("g", topics=None if everything else topics), require_stable=stable)
    return [(topic.name, p.committed_offset, p.error_code) for topic in fetched.topics for p in topic.partitions]


def member_of(shard: GroupShard) -> tuple[str, int]:
    """Add a member; return its id and generation. The group completes the rebalance."""
    shards.join(shard, join_request(), GroupClient("c", "/h", 3, "1"), "deferred", NOW)
    [expired] = shard.handle_deadlines(NOW)
    [(_, response)] = expired.responses
    assert isinstance(response, JoinGroupResponse)
    return response.member_id, response.generation_id


def test_offsets_are_visible_once_their_transaction_is_committed(shard: GroupShard) -> None:
    commit_plainly(shard, 1)
    assert commit(shard, request()) == ErrorCode.NONE
    assert seen(shard) == [("t", 1, 0), ("u", -1, 0)]
    assert seen(shard, stable=True) == [("t", -1, UNSTABLE), ("u", -1, 0)]
    shard.transaction_ended(PRODUCER, commit=True)
    assert seen(shard, stable=True) == [("t", 5, 0), ("u", -1, 0)]


def test_a_first_pending_offset_is_unstable_and_not_listed(shard: GroupShard) -> None:
    commit(shard, request())
    assert seen(shard, stable=True) == [("t", -1, UNSTABLE), ("u", -1, 0)]
    assert seen(shard, stable=True, everything=True) == []
    commit_plainly(shard, 2, "u")
    commit_plainly(shard, 1)
    assert sorted(seen(shard, stable=True, everything=True)) == [("t", -1, UNSTABLE), ("u", 2, 0)]
    assert sorted(seen(shard, everything=True)) == [("t", 1, 0), ("u", 2, 0)]


def test_a_transactional_offset_keeps_all_its_fields(shard: GroupShard) -> None:
    commit(shard, request(5, metadata="note"))
    shard.transaction_ended(PRODUCER, commit=True)
    found = shard.offsets.get("g", "t", 0)
    assert found is not None
    assert found[:5] == (5, 3, "note", NOW.wall_ms, None)


def test_an_aborted_transaction_keeps_the_committed_offset(shard: GroupShard) -> None:
    commit_plainly(shard, 1)
    commit(shard, request())
    shard.transaction_ended(PRODUCER, commit=False)
    assert seen(shard, stable=True) == [("t", 1, 0), ("u", -1, 0)]


def test_a_marker_ends_the_transaction_of_its_producer_only(shard: GroupShard) -> None:
    commit(shard, request(5))
    commit(shard, request(6, OTHER))
    shard.transaction_ended(OTHER, commit=True)
    assert seen(shard) == [("t", 6, 0), ("u", -1, 0)]
    assert seen(shard, stable=True) == [("t", -1, UNSTABLE), ("u", -1, 0)]
    shard.transaction_ended(PRODUCER, commit=True)
    # The offset of the other producer has the later record.
    assert seen(shard, stable=True) == [("t", 6, 0), ("u", -1, 0)]


def test_the_last_commit_of_a_transaction_is_used(shard: GroupShard) -> None:
    commit(shard, request(5))
    commit_plainly(shard, 6)
    commit(shard, request(7))
    shard.transaction_ended(PRODUCER, commit=True)
    assert committed(shard) == 7


def test_a_later_commit_outside_the_transaction_stays(shard: GroupShard) -> None:
    commit(shard, request(5))
    commit_plainly(shard, 6)
    shard.transaction_ended(PRODUCER, commit=True)
    assert committed(shard) == 6


def test_offset_metadata_may_be_null_and_is_limited(shard: GroupShard) -> None:
    assert commit(shard, request(metadata=None)) == ErrorCode.NONE
    assert commit(shard, request(topic="u", metadata="12345")) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert seen(shard, stable=True) == [("t", -1, UNSTABLE), ("u", -1, 0)]


def test_before_version_3_the_member_is_not_checked(shard: GroupShard) -> None:
    member_of(shard)
    assert commit(shard, request()) == ErrorCode.NONE


def test_a_commit_that_names_a_member_is_checked(shard: GroupShard) -> None:
    member, generation = member_of(shard)

    def of(generation: int, member: str, instance: str | None = None) -> ErrorCode:
        wanted = request()
        wanted.generation_id, wanted.member_id, wanted.group_instance_id = generation, member, instance
        return commit(shard, wanted)

    # A rebalance in progress does not matter.
    assert of(generation, member) == ErrorCode.NONE
    assert of(generation + 1, member) == ErrorCode.ILLEGAL_GENERATION
    assert of(-1, member) == ErrorCode.ILLEGAL_GENERATION
    assert of(generation, "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert of(generation, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert of(generation, member, "instance") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_replaced_static_member_is_fenced(shard: GroupShard) -> None:
    joining = join_request()
    joining.group_instance_id = "i"
    shards.join(shard, joining, GroupClient("c", "/h", 5, "1"), "deferred", NOW)
    wanted = request()
    wanted.generation_id, wanted.member_id, wanted.group_instance_id = 1, "predecessor", "i"
    assert commit(shard, wanted) == ErrorCode.FENCED_INSTANCE_ID


def test_a_generation_without_a_group_is_illegal(shard: GroupShard) -> None:
    wanted = request()
    wanted.generation_id = 1
    assert commit(shard, wanted) == ErrorCode.ILLEGAL_GENERATION
    assert shard.groups == {}


def test_a_foreign_group_with_members_refuses_commits(shard: GroupShard) -> None:
    shard.replay(ForeignRecord(GroupType.CONSUMER, "g", b"\0\5\0\1g\0\1m", b"\0\0"))
    assert isinstance(shard.groups["g"], ForeignGroup)
    assert commit(shard, request()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_deleting_an_offset_deletes_its_pending_offsets(shard: GroupShard) -> None:
    commit(shard, request())
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [OffsetDeleteRequest.OffsetDeleteRequestPartition(0)])
    records, _ = shards.delete_offsets(shard, OffsetDeleteRequest("g", [topic]), NOW)
    assert records == [OffsetRecord("g", "t", 0, None)]
    shard.replay(records[0])
    assert seen(shard, stable=True) == [("t", -1, 0), ("u", -1, 0)]
    shard.transaction_ended(PRODUCER, commit=True)
    assert seen(shard) == [("t", -1, 0), ("u", -1, 0)]


def test_deleting_a_group_deletes_its_pending_offsets(shard: GroupShard) -> None:
    commit_plainly(shard, 1)
    commit(shard, request())
    commit(shard, request(topic="u"))
    records, _ = shard.delete("g")
    assert records == [OffsetRecord("g", "t", 0, None), OffsetRecord("g", "u", 0, None), GroupMetadataRecord("g", None)]
    for record in records:
        shard.replay(record)
    shard.transaction_ended(PRODUCER, commit=True)
    assert (shard.groups, seen(shard, everything=True)) == ({}, [])


def test_deleting_topics_deletes_pending_offsets_too(shard: GroupShard) -> None:
    commit_plainly(shard, 1)
    commit(shard, request())
    commit(shard, request(topic="u"))
    records = shard.delete_offsets_of_topics(["t", "u"])
    assert records == [OffsetRecord("g", "t", 0, None), OffsetRecord("g", "u", 0, None)]


def test_nothing_expires_while_a_transaction_is_open_for_it(shard: GroupShard) -> None:
    commit_plainly(shard, 1, "u")
    commit(shard, request())
    late = NOW.wall_ms + 100_000
    assert shard.expire_offsets(late) == [OffsetRecord("g", "u", 0, None)]
    shard.replay(OffsetRecord("g", "u", 0, None))
    assert shard.expire_offsets(late) == []
    commit_plainly(shard, 1)
    assert shard.expire_offsets(late) == []
    shard.transaction_ended(PRODUCER, commit=False)
    assert shard.expire_offsets(late) == [OffsetRecord("g", "t", 0, None), GroupMetadataRecord("g", None)]
