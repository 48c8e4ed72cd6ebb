"""A partition of groups without a log, for tests: the requests of classic groups, and their outcome."""

from __future__ import annotations

from typing import Any

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.classic_kind import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from odradek_broker.groups.core.group_loader import GroupLoader
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings, GroupStep
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.sync_group import SyncGroupRequest
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import end_txn_marker_batch

ANY_CLIENT = GroupClient("c", "/h", 9)


def new_shard(settings: GroupSettings | None = None) -> GroupShard:
    return GroupShard(settings or GroupSettings(), ClusterImage())


def join(
    shard: GroupShard, request: JoinGroupRequest, client: GroupClient, deferred: object, now: Instant
) -> GroupStep:
    return shard.handle(JOIN_GROUP, request, client, deferred, now)


def sync(shard: GroupShard, request: SyncGroupRequest, deferred: object, now: Instant) -> GroupStep:
    return shard.handle(SYNC_GROUP, request, ANY_CLIENT, deferred, now)


def heartbeat(shard: GroupShard, request: HeartbeatRequest, now: Instant) -> ErrorCode:
    [(_, response)] = shard.handle(HEARTBEAT, request, ANY_CLIENT, "heartbeat", now).responses
    return _error(response)


def leave(shard: GroupShard, request: LeaveGroupRequest, now: Instant) -> tuple[GroupStep, LeaveGroupResponse]:
    """Return the response apart from the step, which has the responses of the members that stay."""
    step = shard.handle(LEAVE_GROUP, request, ANY_CLIENT, "leave", now)
    [response] = [response for deferred, response in step.responses if deferred == "leave"]
    step.responses = [entry for entry in step.responses if entry[0] != "leave"]
    assert isinstance(response, LeaveGroupResponse)
    return step, response


def commit(
    shard: GroupShard, request: OffsetCommitRequest, api_version: int, now: Instant
) -> tuple[list[CoordinatorRecord], OffsetCommitResponse] | ErrorCode:
    """Return the records and the response once they are written; or the error of the whole request."""
    step = shard.commit(request, api_version, "commit", now)
    if isinstance(step, ErrorCode):
        return step
    response = _only_response(step)
    assert isinstance(response, OffsetCommitResponse)
    return step.records, response


def delete_offsets(
    shard: GroupShard, request: OffsetDeleteRequest, now: Instant
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    step = shard.delete_offsets(request, "delete", now)
    response = _only_response(step)
    assert isinstance(response, OffsetDeleteResponse)
    return step.records, response


def _only_response(step: GroupStep) -> object:
    [response] = [response for _, response in step.responses] + [each.response for each in step.responses_once_written]
    return response


def _error(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


NOW = Instant(1_700_000_000_000, 0)


def offset(value: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, OffsetCommitValue(value, -1, "", 100))


def batch(base_offset: int, records: list[CoordinatorRecord], producer_id: int = -1) -> bytes:
    transactional = producer_id != -1
    builder = BatchBuilder(base_offset=base_offset, producer_id=producer_id, is_transactional=transactional)
    for record in records:
        builder.append(0, *record.encode())
    return bytes(builder.build())


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        end_txn_marker_batch(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=0,
            base_offset=base_offset,
        )
    )  # fmt: skip


def loaded(*batches: bytes) -> GroupShard:
    shard = new_shard()
    loading = GroupLoader(shard)
    for data in batches:
        loading.read_batches(memoryview(data))
    while loading.replay_next(1):
        pass
    shard.loaded(NOW)
    return shard


def committed(shard: GroupShard) -> int | None:
    found = shard.offsets.get("g", "t", 0)
    return None if found is None else found.offset


def join_request(member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    return JoinGroupRequest("g", 10_000, 10_000, member_id, None, "consumer", [protocol])
