"""SyncGroup, Heartbeat and LeaveGroup: the life of a member between two join phases.

Owns their checks in Kafka's order. Leaves what follows for the group to `classic_rebalance`.
"""

from __future__ import annotations

from odradek_broker.coordination.core.step import Token
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_join import member_error
from odradek_broker.groups.core.classic_rebalance import complete_join_if_all_joined, prepare_rebalance, remove_member
from odradek_broker.groups.core.group_records import group_record
from odradek_broker.groups.core.group_step import NO_MEMBER, AssignmentWrite, DeadlineKind, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(step: GroupStep, group: ClassicGroup, request: SyncGroupRequest, token: Token) -> None:
    """Every path answers `token`: now, or once the leader's assignment is written."""
    error = _sync_error(group, request)
    if error:
        step.respond(token, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        step.expect_no_more(DeadlineKind.SYNC, group)
    if group.is_in(ClassicGroupState.STABLE):
        step.respond(
            token,
            SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
            ),
        )
        return
    # A sync that already waits was given up by its client (Kafka never answers it).
    step.respond_to_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = token
    if group.leader == member.member_id:
        given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        step.records.append(group_record(group, assignments))
        step.write = AssignmentWrite(group.group_id, group.generation, assignments)


def heartbeat(step: GroupStep, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    error = member_error(group, request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    step.extend_session(group, group.members[request.member_id])
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(step: GroupStep, group: ClassicGroup, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Members leave, or an administrator takes out static ones, which it names without a member id. One answer each."""
    response = LeaveGroupResponse()
    anybody = False
    for identity in request.members:
        error = _leave_one(step, group, identity)
        anybody = anybody or not error
        response.members.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    if anybody and group.is_in(ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
        prepare_rebalance(step, group)
    elif anybody:
        complete_join_if_all_joined(step, group)
    return response


def _leave_one(step: GroupStep, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id == NO_MEMBER:
        holder = None if instance_id is None else group.static_members.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder
    elif member_id in group.pending_members:
        group.remove(member_id)
        step.expect_no_more(DeadlineKind.SESSION, group, member_id)
        return ErrorCode.NONE
    else:
        error = member_error(group, member_id, instance_id)
        if error:
            return error
    remove_member(step, group, group.members[member_id])
    return ErrorCode.NONE


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = member_error(group, request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(asked: str | None, present: str | None) -> bool:
    """Before KIP-559 (v5) nothing is asked."""
    return asked is not None and present is not None and asked != present
