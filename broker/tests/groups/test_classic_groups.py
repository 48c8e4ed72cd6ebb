"""Rules of classic groups that no client sees directly: failed writes, loss of leadership, deadlines."""

from __future__ import annotations

from broker.tests.groups import shards
from broker.tests.groups.shards import new_shard

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_step import AssignmentWrite, ReplacementWrite
from odradek_broker.groups.core.consumer_protocol import subscribed_topics
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import (
    GroupClient,
    GroupSettings,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NOW = Instant(1_700_000_000_000, 0)


def join_request(member_id: str = "", instance_id: str | None = None) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    return JoinGroupRequest("g", 10_000, 30_000, member_id, instance_id, "consumer", [protocol])


def group_client(number: int, version: int = 3) -> GroupClient:
    return GroupClient("c", "/h", version, str(number))


def group_of(shard: GroupShard) -> ClassicGroup:
    group = shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def joined(shard: GroupShard, instance_id: str | None = None) -> str:
    """Add the only member of a group, and end the join phase; return the member id."""
    shards.join(shard, join_request(instance_id=instance_id), group_client(1), "join", NOW)
    [step] = shard.handle_deadlines(NOW)
    [(_, response)] = step.responses
    assert isinstance(response, JoinGroupResponse)
    return response.member_id


def synced(shard: GroupShard, member_id: str) -> AssignmentWrite:
    request = SyncGroupRequest("g", 1, member_id)
    request.assignments = [SyncGroupRequest.SyncGroupRequestAssignment(member_id, b"p0")]
    step = shards.sync(shard, request, "sync", NOW)
    assert isinstance(step.write, AssignmentWrite)
    assert step.responses == []
    return step.write


def test_sync_group_responds_once_the_assignment_is_written() -> None:
    shard = new_shard()
    write = synced(shard, joined(shard))
    assert group_of(shard).state is ClassicGroupState.COMPLETING_REBALANCE
    step = shard.written(write, ErrorCode.NONE, NOW)
    assert step.responses == [("sync", SyncGroupResponse(0, 0, "consumer", "range", b"p0"))]
    assert group_of(shard).state is ClassicGroupState.STABLE


def test_a_failed_write_of_an_assignment_begins_another_rebalance() -> None:
    shard = new_shard()
    write = synced(shard, joined(shard))
    step = shard.written(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOW)
    assert step.responses == [("sync", SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))]
    assert group_of(shard).state is ClassicGroupState.PREPARING_REBALANCE


def test_an_assignment_of_an_older_rebalance_is_ignored() -> None:
    shard = new_shard()
    write = synced(shard, joined(shard))
    step = shards.join(shard, join_request(), group_client(2), "other", NOW)
    assert step.responses == [("sync", SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))]
    assert shard.written(write, ErrorCode.NONE, NOW).responses == []
    assert group_of(shard).state is ClassicGroupState.PREPARING_REBALANCE


def test_a_failed_write_restores_the_old_id_of_a_static_member() -> None:
    shard = new_shard()
    member_id = joined(shard, "i")
    shard.written(synced(shard, member_id), ErrorCode.NONE, NOW)
    step = shards.join(shard, join_request(instance_id="i"), group_client(2), "again", NOW)
    assert isinstance(step.write, ReplacementWrite)
    assert list(group_of(shard).members) == ["i-2"]
    failed = shard.written(step.write, ErrorCode.NOT_COORDINATOR, NOW)
    assert [(deferred, response.error_code) for deferred, response in failed.responses] == [
        ("again", ErrorCode.NOT_COORDINATOR)
    ]
    assert list(group_of(shard).members) == [member_id] == list(group_of(shard).static_members.values())
    assert group_of(shard).leader == member_id


def test_unloading_fails_pending_requests_with_not_coordinator() -> None:
    shard = new_shard()
    synced(shard, joined(shard))
    step = shard.unload(NOW)
    assert step.responses == [("sync", SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))]
    assert (shard.groups, shard.deadlines.next_ms()) == ({}, None)


def test_a_second_join_of_a_member_completes_the_first() -> None:
    shard = new_shard(GroupSettings(initial_rebalance_delay_ms=3000))
    shards.join(shard, join_request(), group_client(1), "first", NOW)
    step = shards.join(shard, join_request("c-1"), group_client(2), "second", NOW)
    assert [(deferred, response.error_code) for deferred, response in step.responses] == [
        ("first", ErrorCode.REBALANCE_IN_PROGRESS)
    ]
    [expired] = shard.handle_deadlines(Instant(0, 3000))
    assert [(deferred, response.error_code) for deferred, response in expired.responses] == [("second", ErrorCode.NONE)]


def test_joins_extend_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    shard = new_shard(GroupSettings(initial_rebalance_delay_ms=12_000))
    answered = []
    for second in range(40):
        now = Instant(0, second * 1000)
        for step in shard.handle_deadlines(now):
            answered += [(second, deferred) for deferred, _ in step.responses]
        if second in (0, 11, 22):
            shards.join(shard, join_request(), group_client(second), second, now)
    # The delay is 12 s, then 12 s, then the 6 s that are left of 30 s.
    assert answered == [(30, 0), (30, 11), (30, 22)]


def test_the_first_join_of_a_member_is_pending_for_five_minutes_at_most() -> None:
    shard = new_shard()
    member_id = joined(shard)
    shard.written(synced(shard, member_id), ErrorCode.NONE, NOW)
    long = join_request()
    long.rebalance_timeout_ms = 10**7
    shards.join(shard, long, group_client(2), "new", NOW)
    responses = []
    for moment in range(0, 300_001, 5_000):
        for step in shard.handle_deadlines(Instant(0, moment)):
            responses += [(moment, deferred, response.error_code) for deferred, response in step.responses]
    # The session of the old member expires after 10 s, which ends the join phase of the new one.
    assert responses == [(10_000, "new", ErrorCode.NONE)]


def test_subscriptions_of_every_version_are_read_unless_invalid() -> None:
    one = bytes.fromhex("0003" + "00000001" + "000161" + "ffffffff" + "00000000")
    two = bytes.fromhex("0000" + "00000002" + "000161" + "000162" + "00000000")
    assert subscribed_topics([one, two]) == {"a", "b"}
    assert subscribed_topics([one, b""]) is None
    assert subscribed_topics([bytes.fromhex("0000" + "7fffffff")]) is None
