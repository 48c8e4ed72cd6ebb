"""A kind of group is a module and an entry in the registry: a small one, defined here, is served like the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pytest
from broker.tests.groups.coordinator_alone import TIMEOUT_MS, CoordinatorAlone, offset
from broker.tests.groups.shards import ANY_CLIENT, NOW, join_request

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.classic_kind import CLASSIC, HEARTBEAT, JOIN_GROUP
from odradek_broker.groups.core.foreign_group import SHARE, ForeignGroup
from odradek_broker.groups.core.group import Groups
from odradek_broker.groups.core.group_kind import GroupKind
from odradek_broker.groups.core.group_kinds import GroupKinds
from odradek_broker.groups.core.group_shard import DEADLINE_DELAY_MS, GroupShard
from odradek_broker.groups.core.group_step import Deadlines, GroupClient, GroupSettings, GroupStep
from odradek_broker.groups.core.group_type import GroupType
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_wire.messages.join_group import JoinGroupResponse

SESSION_MS = 1000


class Deadline(Enum):
    SESSION = "session"


@dataclass(frozen=True)
class StreamsRecord:
    """A group with its one member; a tombstone if the member is gone."""

    group_id: str
    has_member: bool
    group_type: GroupType = GroupType.STREAMS

    def encode(self) -> tuple[bytes, bytes | None]:
        return b"\0\x11" + self.group_id.encode(), b"member" if self.has_member else None


def decode(key: bytes, value: bytes | None) -> StreamsRecord:
    return StreamsRecord(key[2:].decode(), value is not None)


def load(groups: Groups, record: StreamsRecord) -> None:
    if record.has_member:
        group = groups[record.group_id] = ForeignGroup(record.group_id, GroupType.STREAMS)
        group.members.add(b"member")
    else:
        groups.pop(record.group_id, None)


def replay(groups: Groups, record: StreamsRecord, deadlines: Deadlines) -> None:
    load(groups, record)


def heartbeat(
    groups: Groups, step: GroupStep, request: HeartbeatRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    step.records.append(StreamsRecord(request.group_id, True))
    step.set_deadline(Deadline.SESSION, request.group_id, SESSION_MS)
    response = HeartbeatResponse(throttle_time_ms=len(step.image.topics))
    step.respond_once_written(deferred, response, lambda error: HeartbeatResponse(error_code=error))


def session_expired(step: GroupStep, group: ForeignGroup, kind: Enum, member_id: str) -> None:
    step.records.append(StreamsRecord(group.group_id, False))


STREAMS_HEARTBEAT = replace(HEARTBEAT, handle=heartbeat, waits_for_writes=True)
STREAMS = GroupKind(
    group_type=GroupType.STREAMS,
    key_types=frozenset({17}),
    decode=decode,
    replay=replay,
    load=load,
    handlers={HeartbeatRequest: STREAMS_HEARTBEAT},
    deadline_passed=session_expired,
    deadlines_wait_for_writes=True,
)
KINDS = GroupKinds([CLASSIC, STREAMS])


@pytest.fixture
def shard() -> GroupShard:
    return GroupShard(GroupSettings(), ClusterImage(), KINDS)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[CoordinatorAlone]:
    """A partition with a follower, which lags until the test lets it fetch."""
    broker = CoordinatorAlone(tmp_path, (1, 2), KINDS)
    yield broker
    broker.stop()


def heartbeat_of(broker: CoordinatorAlone) -> Deferred[HeartbeatResponse]:
    response: Deferred[HeartbeatResponse] = Deferred()
    broker.groups.handle(STREAMS_HEARTBEAT, HeartbeatRequest("s"), ANY_CLIENT, response)
    return response


def write(shard: GroupShard, step: GroupStep) -> None:
    for record in step.records:
        shard.replay(shard.kinds.decode(*record.encode()))


def test_a_heartbeat_of_another_kind_responds_once_its_records_are_written(shard: GroupShard) -> None:
    step = shard.handle(STREAMS_HEARTBEAT, HeartbeatRequest("s"), ANY_CLIENT, "deferred", NOW)
    assert (step.records, step.responses, shard.groups) == ([StreamsRecord("s", True)], [], {})
    [(deferred, response, failed)] = step.responses_once_written
    assert (deferred, response) == ("deferred", HeartbeatResponse())
    assert failed(ErrorCode.NOT_COORDINATOR) == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    write(shard, step)
    assert [(group.group_id, group.group_type) for group in shard.list()] == [("s", "streams")]


def test_an_existing_group_is_served_by_the_handler_of_its_kind(shard: GroupShard) -> None:
    write(shard, shard.handle(STREAMS_HEARTBEAT, HeartbeatRequest("s"), ANY_CLIENT, "deferred", NOW))
    step = shard.handle(HEARTBEAT, HeartbeatRequest("s"), ANY_CLIENT, "deferred", NOW)
    assert step.records == [StreamsRecord("s", True)]
    request = join_request()
    request.group_id = "s"
    step = shard.handle(JOIN_GROUP, request, ANY_CLIENT, "deferred", NOW)
    [(_, response)] = step.responses
    assert isinstance(response, JoinGroupResponse)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_deadline_reaches_the_kind_of_its_group(shard: GroupShard) -> None:
    write(shard, shard.handle(STREAMS_HEARTBEAT, HeartbeatRequest("s"), ANY_CLIENT, "deferred", NOW))
    assert list(shard.handle_deadlines(Instant(0, NOW.monotonic_ms + SESSION_MS - 1))) == []
    [step] = shard.handle_deadlines(Instant(0, NOW.monotonic_ms + SESSION_MS))
    assert step.records == [StreamsRecord("s", False)]
    write(shard, step)
    assert shard.groups == {}


def test_a_heartbeat_waits_for_an_earlier_write_of_its_group(followed: CoordinatorAlone) -> None:
    first, second = heartbeat_of(followed), heartbeat_of(followed)
    assert (first.done, second.done, followed.partition.log_end_offset) == (False, False, 1)
    followed.follower_fetched_everything()
    assert (first.result(), second.done) == (HeartbeatResponse(), False)
    assert followed.partition.log_end_offset == 2
    followed.follower_fetched_everything()
    assert second.result() == HeartbeatResponse()


def test_a_heartbeat_that_waits_fails_with_the_write(followed: CoordinatorAlone) -> None:
    first, second = heartbeat_of(followed), heartbeat_of(followed)
    followed.clock.advance_timeouts(TIMEOUT_MS)
    assert first.result() == HeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    assert second.result() == HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert followed.partition.log_end_offset == 1


def test_a_waiting_heartbeat_of_a_closed_connection_is_dropped(followed: CoordinatorAlone) -> None:
    heartbeat_of(followed)
    heartbeat_of(followed).cancel()
    followed.follower_fetched_everything()
    assert followed.partition.log_end_offset == 1


def test_a_deadline_waits_for_an_earlier_write(followed: CoordinatorAlone) -> None:
    heartbeat_of(followed)
    followed.follower_fetched_everything()
    followed.groups.write([offset(5)], lambda error: None)
    followed.clock.advance_timeouts(SESSION_MS)
    assert followed.partition.log_end_offset == 2
    followed.follower_fetched_everything()
    followed.clock.advance_timeouts(DEADLINE_DELAY_MS)
    assert followed.partition.log_end_offset == 3
    followed.follower_fetched_everything()
    assert followed.groups.shard.groups.keys() == {"g"}


def test_a_type_of_key_belongs_to_one_kind() -> None:
    with pytest.raises(AssertionError, match="one kind"):
        GroupKinds([CLASSIC, SHARE, replace(STREAMS, key_types=frozenset({10}))])
