"""Loading a shard from its log: batches, transactions, and foreign groups."""

from __future__ import annotations

from broker.tests.groups import shards
from broker.tests.groups.shards import NOW, batch, committed, join_request, loaded, marker, new_shard, offset

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.classic_records import group_record
from odradek_broker.groups.core.foreign_group import ForeignGroup, ForeignRecord
from odradek_broker.groups.core.group_loader import GroupLoader
from odradek_broker.groups.core.group_records import GroupMetadataRecord, OffsetRecord
from odradek_broker.groups.core.group_step import GroupClient
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest

CONSUMER_GROUP = ForeignRecord(GroupType.CONSUMER, "g", b"\0\3\0\1g", b"\0\0\0\0\0\1")
CONSUMER_MEMBER = ForeignRecord(GroupType.CONSUMER, "g", b"\0\5\0\1g\0\1m", b"\0\0")


def test_the_last_record_of_a_key_is_loaded() -> None:
    assert committed(loaded(batch(0, [offset(1), offset(2)]), batch(2, [offset(3)]))) == 3
    assert committed(loaded(batch(0, [offset(1), OffsetRecord("g", "t", 0, None)]))) is None


def test_read_batches_returns_the_offset_after_the_last_batch() -> None:
    shard = new_shard()
    assert GroupLoader(shard).read_batches(memoryview(batch(0, [offset(1), offset(2)]) + batch(2, [offset(3)]))) == 3


def test_transactional_offsets_are_loaded_once_their_marker_commits() -> None:
    begun = batch(0, [offset(7)], producer_id=9)
    assert committed(loaded(begun)) is None
    assert committed(loaded(begun, marker(1, 9, commit=True))) == 7
    assert committed(loaded(begun, marker(1, 9, commit=False))) is None
    assert committed(loaded(begun, marker(1, 8, commit=True))) is None


def test_a_late_marker_does_not_undo_a_later_commit() -> None:
    assert (
        committed(loaded(batch(0, [offset(7)], producer_id=9), batch(1, [offset(8)]), marker(2, 9, commit=True))) == 8
    )


def test_an_open_transaction_is_loaded_as_pending() -> None:
    shard = loaded(batch(0, [offset(6)]), batch(1, [offset(7)], producer_id=9))
    assert (committed(shard), shard.offsets.pending.is_pending("g", "t", 0)) == (6, True)
    shard.transaction_ended(9, commit=True)
    assert (committed(shard), shard.offsets.pending.is_pending("g", "t", 0)) == (7, False)


def test_a_group_with_pending_offsets_only_exists() -> None:
    shard = loaded(batch(0, [offset(7)], producer_id=9))
    assert [(g.group_id, g.group_state) for g in shard.list()] == [("g", "Empty")]


def test_a_commit_after_loading_keeps_the_order_of_the_log() -> None:
    shard = loaded(batch(0, [offset(7)], producer_id=9), batch(1, [offset(8)]))
    shard.transaction_ended(9, commit=True)
    assert committed(shard) == 8


def test_a_tombstone_deletes_pending_offsets() -> None:
    deletion = OffsetRecord("g", "t", 0, None)
    begun = batch(0, [offset(7)], producer_id=9)
    assert committed(loaded(begun, batch(1, [deletion]), marker(2, 9, commit=True))) is None
    shard = loaded(begun, batch(1, [deletion, offset(8)]))
    assert not shard.offsets.pending.is_pending("g", "t", 0)
    shard = loaded(begun, batch(1, [deletion]), batch(2, [offset(9)], producer_id=9))
    shard.transaction_ended(9, commit=True)
    assert committed(shard) == 9


def test_group_metadata_in_a_transactional_batch_needs_no_marker() -> None:
    assert isinstance(loaded(batch(0, [CONSUMER_GROUP], producer_id=9)).groups["g"], ForeignGroup)


def test_sessions_begin_when_the_group_is_loaded() -> None:
    first = new_shard()
    shards.join(first, join_request(), GroupClient("c", "/h", 3, "1"), "deferred", NOW)
    [expired] = first.handle_deadlines(NOW)
    [(_, response)] = expired.responses
    assert isinstance(response, JoinGroupResponse)
    group = first.groups["g"]
    assert isinstance(group, ClassicGroup)
    shard = loaded(batch(0, [group_record(group, {})]))
    heartbeat = HeartbeatRequest("g", response.generation_id, response.member_id)
    later = Instant(0, 9_999)
    assert shards.heartbeat(shard, heartbeat, later) == ErrorCode.NONE
    assert list(shard.handle_deadlines(Instant(0, 19_998))) == []
    assert len(list(shard.handle_deadlines(Instant(0, 20_000)))) == 1
    assert shards.heartbeat(shard, heartbeat, Instant(0, 20_000)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_foreign_group_with_members_is_listed_and_not_replaced() -> None:
    shard = loaded(batch(0, [CONSUMER_GROUP, CONSUMER_MEMBER, offset(5)]))
    assert isinstance(shard.groups["g"], ForeignGroup)
    assert [(g.group_id, g.group_type, g.group_state) for g in shard.list()] == [("g", "consumer", "Stable")]
    step = shards.join(shard, join_request(), GroupClient("c", "/h", 3, "1"), "deferred", NOW)
    assert [(deferred, response.error_code) for deferred, response in step.responses] == [
        ("deferred", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ]
    assert step.records == []
    commit = OffsetCommitRequest("g", 1, "m")
    assert shards.commit(shard, commit, 9, NOW) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.delete("g")[1].error_code == ErrorCode.NON_EMPTY_GROUP
    assert shard.expire_offsets(10**15) == []
    assert committed(shard) == 5


def test_a_classic_group_replaces_an_empty_foreign_group() -> None:
    shard = loaded(batch(0, [CONSUMER_GROUP]))
    step = shards.join(shard, join_request(), GroupClient("c", "/h", 3, "1"), "deferred", NOW)
    tombstone, created = step.records
    assert tombstone == ForeignRecord(GroupType.CONSUMER, "g", CONSUMER_GROUP.key, None)
    assert isinstance(created, GroupMetadataRecord)
    for record in step.records:
        shard.replay(record)
    assert isinstance(shard.groups["g"], ClassicGroup)


def test_deleting_a_foreign_group_deletes_its_records_and_offsets() -> None:
    shard = loaded(batch(0, [CONSUMER_GROUP, offset(5)]))
    records, result = shard.delete("g")
    assert result.error_code == ErrorCode.NONE
    for record in records:
        shard.replay(record)
    assert (shard.groups, committed(shard)) == ({}, None)
