"""Classic groups as a kind of group: the handlers of JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and replay.

Leaves the rules to `classic_join`, `classic_rebalance` and `classic_session`.
"""

from __future__ import annotations

from enum import Enum

from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core import classic_join, classic_rebalance, classic_session
from odradek_broker.groups.core.classic_group import ClassicDeadline, ClassicGroup
from odradek_broker.groups.core.classic_records import group_from_record, new_group_record
from odradek_broker.groups.core.classic_step import (
    AssignmentWrite,
    ReplacementWrite,
    join_error,
    respond_to_join,
    respond_to_sync,
)
from odradek_broker.groups.core.group import Groups
from odradek_broker.groups.core.group_kind import GroupKind, RequestHandler
from odradek_broker.groups.core.group_records import GROUP_METADATA_KEY, GroupMetadataRecord, decode_group_metadata
from odradek_broker.groups.core.group_step import (
    NO_MEMBER,
    DeadlineKey,
    Deadlines,
    GroupClient,
    GroupSettings,
    GroupStep,
    GroupWrite,
)
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# -- requests -----------------------------------------------------------------------------------------------------


def _join(
    groups: Groups, step: GroupStep, request: JoinGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    group = groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        classic_join.join(step, group, request, client, deferred)
    elif group is not None and not group.is_empty:
        step.respond(deferred, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif group is None and request.member_id != NO_MEMBER:
        step.respond(deferred, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    else:
        # KIP-848: a classic group replaces an empty group of another kind.
        step.records.extend(group.tombstones() if group else [])
        created = groups[request.group_id] = ClassicGroup(request.group_id, step.now.wall_ms)
        classic_join.join(step, created, request, client, deferred)
        step.records.append(new_group_record(created))


def _join_error_response(request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    invalid = error in (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
    return join_error(error, request.member_id if invalid else NO_MEMBER)


def _validate_join(request: JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    allowed = settings.allow_session_timeout(request.session_timeout_ms)
    return ErrorCode.NONE if allowed else ErrorCode.INVALID_SESSION_TIMEOUT


def _sync(
    groups: Groups, step: GroupStep, request: SyncGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    group = groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        classic_session.sync(step, group, request, deferred)
    else:
        step.respond(deferred, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))


def _sync_error_response(request: SyncGroupRequest, error: ErrorCode) -> SyncGroupResponse:
    # As in Kafka: the coordinator does not know the group while it loads, so the member rejoins.
    loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if loading else error)


def _heartbeat(
    groups: Groups, step: GroupStep, request: HeartbeatRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    group = groups.get(request.group_id)
    error = ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ClassicGroup):
        error = classic_session.heartbeat(step, group, request)
    step.respond(deferred, HeartbeatResponse(error_code=error))


def _heartbeat_error_response(request: HeartbeatRequest, error: ErrorCode) -> HeartbeatResponse:
    # As in Kafka: the member's session begins when the coordinator has loaded.
    loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)


def _leave(
    groups: Groups, step: GroupStep, request: LeaveGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    group = groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        step.respond(deferred, classic_session.leave(step, group, request))
        return
    unknown = [
        LeaveGroupResponse.MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        for member in request.members
    ]
    step.respond(deferred, LeaveGroupResponse(members=unknown))


JOIN_GROUP = RequestHandler(
    request_class=JoinGroupRequest,
    handle=_join,
    error_response=_join_error_response,
    validate=_validate_join,
)
SYNC_GROUP = RequestHandler(request_class=SyncGroupRequest, handle=_sync, error_response=_sync_error_response)
HEARTBEAT = RequestHandler(request_class=HeartbeatRequest, handle=_heartbeat, error_response=_heartbeat_error_response)
LEAVE_GROUP = RequestHandler(
    request_class=LeaveGroupRequest,
    handle=_leave,
    error_response=lambda request, error: LeaveGroupResponse(error_code=error),
)
"""Reads only `members`, which the API module fills for versions before v3."""


# -- records ------------------------------------------------------------------------------------------------------


def _replay(groups: Groups, record: GroupMetadataRecord, deadlines: Deadlines) -> None:
    """Apply a deletion only: the group in memory is newer than its record."""
    group = groups.get(record.group_id)
    if record.value is None and isinstance(group, ClassicGroup) and group.is_empty:
        del groups[group.group_id]
        for member_id in sorted(group.pending_join_members):
            deadlines.cancel(DeadlineKey(ClassicDeadline.SESSION, group.group_id, member_id))


def _load(groups: Groups, record: GroupMetadataRecord) -> None:
    if record.value is None:
        groups.pop(record.group_id, None)
    else:
        groups[record.group_id] = group_from_record(record.group_id, record.value)


def _loaded(step: GroupStep, group: ClassicGroup) -> None:
    for member in group.members.values():
        group.extend_session(step, member)
    if len(group.members) > step.settings.max_size:
        classic_rebalance.prepare_rebalance(step, group)


def _unloaded(step: GroupStep, group: ClassicGroup) -> None:
    for member in group.members.values():
        respond_to_join(step, group, member, join_error(ErrorCode.NOT_COORDINATOR, member.member_id))
        respond_to_sync(step, member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))


# -- deadlines and writes -----------------------------------------------------------------------------------------


def _deadline_passed(step: GroupStep, group: ClassicGroup, kind: Enum, member_id: str) -> None:
    match kind:
        case ClassicDeadline.SESSION:
            classic_rebalance.session_expired(step, group, member_id)
        case ClassicDeadline.JOIN:
            classic_rebalance.join_phase_expired(step, group)
        case ClassicDeadline.SYNC:
            classic_rebalance.sync_phase_expired(step, group)


def _written(step: GroupStep, group: ClassicGroup, write: GroupWrite, error: ErrorCode) -> None:
    match write:
        case AssignmentWrite():
            classic_rebalance.assignment_written(step, group, write, error)
        case ReplacementWrite():
            classic_join.replacement_written(step, group, write, error)


CLASSIC = GroupKind(
    group_type=GroupType.CLASSIC,
    key_types=frozenset({GROUP_METADATA_KEY}),
    decode=decode_group_metadata,
    replay=_replay,
    load=_load,
    handlers={handler.request_class: handler for handler in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)},
    loaded=_loaded,
    unloaded=_unloaded,
    deadline_passed=_deadline_passed,
    written=_written,
)
