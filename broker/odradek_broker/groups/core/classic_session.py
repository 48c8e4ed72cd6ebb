"""SyncGroup, Heartbeat and LeaveGroup in classic groups: the requests of a member after it has joined.

Owns their checks in Kafka's order. Leaves the rebalance that follows to `classic_rebalance`.
"""

from __future__ import annotations

from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core.classic_group import ClassicDeadline, ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_rebalance import complete_join_if_all_joined, prepare_rebalance, remove_member
from odradek_broker.groups.core.classic_records import group_record
from odradek_broker.groups.core.classic_step import AssignmentWrite, cancel_deadline, respond_to_sync
from odradek_broker.groups.core.group_step import NO_MEMBER, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(step: GroupStep, group: ClassicGroup, request: SyncGroupRequest, deferred: DeferredResponse) -> None:
    """Complete `deferred` now, or when the leader's assignment is written."""
    error = _sync_error(group, request)
    if error:
        step.respond(deferred, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_sync_members.pop(member.member_id, None)
    if not group.pending_sync_members:
        cancel_deadline(step, ClassicDeadline.SYNC, group)
    if group.is_in(ClassicGroupState.STABLE):
        step.respond(
            deferred,
            SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
            ),
        )
        return
    # The client has abandoned a SyncGroup that is still pending (Kafka never completes it).
    respond_to_sync(step, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = deferred
    if group.leader == member.member_id:
        assigned = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        assignments = {member_id: assigned.get(member_id, b"") for member_id in group.members}
        step.records.append(group_record(group, assignments))
        step.write = AssignmentWrite(group.group_id, group.generation, assignments)


def heartbeat(step: GroupStep, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.extend_session(step, group.members[request.member_id])
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(step: GroupStep, group: ClassicGroup, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members that leave. An admin client removes static members by their instance ids alone."""
    response = LeaveGroupResponse()
    removed = False
    for identity in request.members:
        error = _leave_one(step, group, identity)
        removed = removed or not error
        response.members.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    if removed and group.is_in(ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
        prepare_rebalance(step, group)
    elif removed:
        complete_join_if_all_joined(step, group)
    return response


def _leave_one(step: GroupStep, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id == NO_MEMBER:
        current_id = None if instance_id is None else group.static_members.get(instance_id)
        if current_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current_id
    elif member_id in group.pending_join_members:
        group.remove(member_id)
        cancel_deadline(step, ClassicDeadline.SESSION, group, member_id)
        return ErrorCode.NONE
    else:
        error = group.validate_member(member_id, instance_id)
        if error:
            return error
    remove_member(step, group, group.members[member_id])
    return ErrorCode.NONE


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(requested: str | None, current: str | None) -> bool:
    """Compare only if both are set: before v5 the request has no protocol type and name (KIP-559)."""
    return requested is not None and current is not None and requested != current
