"""How a classic group rebalances: the join phase, the sync phase, and their deadlines.

Owns when a join phase begins and ends, which members are removed, and the responses at the end of a phase. Leaves the
checks of JoinGroup to `classic_join`, and SyncGroup, Heartbeat and LeaveGroup to `classic_session`.
"""

from __future__ import annotations

from odradek_broker.groups.core.classic_group import ClassicDeadline, ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember
from odradek_broker.groups.core.classic_records import group_record
from odradek_broker.groups.core.classic_step import (
    AssignmentWrite,
    cancel_deadline,
    join_error,
    join_response,
    log_event,
    respond_to_join,
    respond_to_sync,
    set_deadline,
)
from odradek_broker.groups.core.group_step import NO_MEMBER, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.sync_group import SyncGroupResponse


def rebalance_or_complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """Begin a rebalance if the group's state allows it, else end the join phase if all members have joined."""
    if group.can_rebalance:
        prepare_rebalance(step, group)
    else:
        complete_join_if_all_joined(step, group)


def prepare_rebalance(step: GroupStep, group: ClassicGroup) -> None:
    """Begin the join phase. Members learn of it from the responses to their heartbeats."""
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE):
        _drop_assignments(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync_members.clear()
    cancel_deadline(step, ClassicDeadline.SYNC, group)
    initial = group.is_empty
    group.transition(ClassicGroupState.PREPARING_REBALANCE, step.now.wall_ms)
    log_event(step, "group rebalances", group)
    if initial:
        # The first members rarely join together: delay the end of the join phase, and extend the delay while more join.
        delay_ms = step.settings.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        set_deadline(step, ClassicDeadline.JOIN, group, delay_ms)
    elif group.has_all_members_joined:
        complete_join(step, group)
    else:
        set_deadline(step, ClassicDeadline.JOIN, group, group.rebalance_timeout_ms)


def complete_join_if_all_joined(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase if all members have joined. The join phase of a group that was empty ends only at its
    deadline, because more members may join."""
    initial = group.previous_state is ClassicGroupState.EMPTY
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and not initial and group.has_all_members_joined:
        complete_join(step, group)


def join_phase_expired(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase at its deadline, or extend the initial delay if members have joined during it."""
    if not group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return
    left_ms = group.initial_delay_left_ms
    if left_ms and group.new_member_added:
        group.new_member_added = False
        delay_ms = min(step.settings.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        set_deadline(step, ClassicDeadline.JOIN, group, delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase: remove dynamic members that have not rejoined, and send the new generation to the others."""
    cancel_deadline(step, ClassicDeadline.JOIN, group)
    group.initial_delay_left_ms = None
    group.new_member_added = False
    for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
        log_event(step, "member did not rejoin in time", group, member, notable=True)
        group.remove(member.member_id)
        cancel_deadline(step, ClassicDeadline.SESSION, group, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has rejoined. They stay until their sessions expire.
        set_deadline(step, ClassicDeadline.JOIN, group, group.rebalance_timeout_ms)
        return
    group.next_generation(step.now.wall_ms)
    if group.is_empty:
        log_event(step, "group is empty", group)
        step.records.append(group_record(group, {}))
        return
    for member in group.members.values():
        respond_to_join(step, group, member, join_response(group, member.member_id))
        group.extend_session(step, member)
        member.is_new = False
        group.pending_sync_members[member.member_id] = None
    set_deadline(step, ClassicDeadline.SYNC, group, group.rebalance_timeout_ms)


def sync_phase_expired(step: GroupStep, group: ClassicGroup) -> None:
    """Remove the members that have joined but have not sent SyncGroup in time, and begin a rebalance."""
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE) and group.pending_sync_members:
        for member_id in list(group.pending_sync_members):
            log_event(step, "member did not send SyncGroup in time", group, group.members[member_id], notable=True)
            group.remove(member_id)
            cancel_deadline(step, ClassicDeadline.SESSION, group, member_id)
        prepare_rebalance(step, group)


def session_expired(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Remove a member, or a pending member id, that has sent nothing within the session timeout."""
    member = group.members.get(member_id)
    if member_id in group.pending_join_members:
        group.remove(member_id)
        if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
            complete_join(step, group)
    elif member is not None and not member.is_session_paused:
        log_event(step, "member session expired", group, member, notable=True)
        remove_member(step, group, member)
        if group.is_in(ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            prepare_rebalance(step, group)
        elif group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
            complete_join(step, group)


def remove_member(step: GroupStep, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Remove a member; its pending requests fail with UNKNOWN_MEMBER_ID, so that its client joins as a new member."""
    respond_to_join(step, group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
    respond_to_sync(step, member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    cancel_deadline(step, ClassicDeadline.SESSION, group, member.member_id)


def assignment_written(step: GroupStep, group: ClassicGroup, write: AssignmentWrite, error: ErrorCode) -> None:
    """Complete the pending SyncGroups when the leader's assignment is written; begin a rebalance if the write failed.
    Do nothing if the group has begun another rebalance meanwhile."""
    if not group.is_in(ClassicGroupState.COMPLETING_REBALANCE) or group.generation != write.generation:
        return
    if error:
        _drop_assignments(step, group, error)
        prepare_rebalance(step, group)
        return
    for member in group.members.values():
        member.assignment = write.assignments.get(member.member_id, b"")
        response = SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )
        if respond_to_sync(step, member, response):
            # The session was paused while the request was pending.
            group.extend_session(step, member)
    group.transition(ClassicGroupState.STABLE, step.now.wall_ms)
    log_event(step, "group is stable", group)


def _drop_assignments(step: GroupStep, group: ClassicGroup, error: ErrorCode) -> None:
    """Clear all assignments, and fail every pending SyncGroup with this error."""
    for member in group.members.values():
        member.assignment = b""
        if respond_to_sync(step, member, SyncGroupResponse(error_code=error)):
            group.extend_session(step, member)
