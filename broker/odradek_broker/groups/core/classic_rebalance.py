"""How a classic group rebalances: the join phase, the sync phase, and what time does to both.

Owns when a join phase begins and ends, who is thrown out, and the answers that the end of a phase gives to everybody
who waits. Leaves who may join to `classic_join`, and Sync, Heartbeat and LeaveGroup to `classic_session`.
"""

from __future__ import annotations

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember
from odradek_broker.groups.core.group_records import group_record
from odradek_broker.groups.core.group_step import (
    NO_MEMBER,
    AssignmentWrite,
    DeadlineKind,
    GroupStep,
    join_answer,
    join_error,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.sync_group import SyncGroupResponse


def rebalance_or_complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """Membership changed: begin a rebalance, or see whether the one that runs was waiting just for this."""
    if group.can_rebalance:
        prepare_rebalance(step, group)
    else:
        complete_join_if_all_joined(step, group)


def prepare_rebalance(step: GroupStep, group: ClassicGroup) -> None:
    """Open the join phase. Members learn of it from the answers to their heartbeats."""
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE):
        _forget_assignments(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    step.expect_no_more(DeadlineKind.SYNC, group)
    initial = group.is_empty
    group.transition(ClassicGroupState.PREPARING_REBALANCE, step.now.wall_ms)
    step.log_event("group rebalances", group)
    if initial:
        # The first members of an application rarely arrive together: wait, and wait longer while they keep coming.
        delay_ms = step.settings.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        step.expect(DeadlineKind.JOIN, group, delay_ms)
    elif group.all_joined:
        complete_join(step, group)
    else:
        step.expect(DeadlineKind.JOIN, group, group.rebalance_timeout_ms)


def complete_join_if_all_joined(step: GroupStep, group: ClassicGroup) -> None:
    """An initial join phase ends by its delay, never by counting: nobody knows how many will come."""
    initial = group.previous_state is ClassicGroupState.EMPTY
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and not initial and group.all_joined:
        complete_join(step, group)


def join_phase_expired(step: GroupStep, group: ClassicGroup) -> None:
    """The deadline of the join phase has passed; an initial one may be extended."""
    if not group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        return
    left_ms = group.initial_delay_left_ms
    if left_ms and group.newcomers:
        group.newcomers = False
        delay_ms = min(step.settings.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        step.expect(DeadlineKind.JOIN, group, delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """Close the join phase: who has not rejoined is out, the rest get a new generation, the leader its members."""
    step.expect_no_more(DeadlineKind.JOIN, group)
    group.initial_delay_left_ms = None
    group.newcomers = False
    for member in [m for m in group.members.values() if m.join is None and m.instance_id is None]:
        step.log_event("member did not rejoin in time", group, member, notable=True)
        group.remove(member.member_id)
        step.expect_no_more(DeadlineKind.SESSION, group, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none is here: their sessions decide, not this phase.
        step.expect(DeadlineKind.JOIN, group, group.rebalance_timeout_ms)
        return
    group.next_generation(step.now.wall_ms)
    if group.is_empty:
        step.log_event("group is empty", group)
        step.records.append(group_record(group, {}))
        return
    for member in group.members.values():
        step.respond_to_join(group, member, join_answer(group, member.member_id))
        step.extend_session(group, member)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    step.expect(DeadlineKind.SYNC, group, group.rebalance_timeout_ms)


def sync_phase_expired(step: GroupStep, group: ClassicGroup) -> None:
    """Members that took part in the join phase but never asked for an assignment are out."""
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE) and group.pending_sync:
        for member_id in list(group.pending_sync):
            step.log_event(
                "member did not ask for its assignment in time", group, group.members[member_id], notable=True
            )
            group.remove(member_id)
            step.expect_no_more(DeadlineKind.SESSION, group, member_id)
        prepare_rebalance(step, group)


def session_expired(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Nothing was heard of a member, or of a member id that was given out."""
    member = group.members.get(member_id)
    if member_id in group.pending_members:
        group.remove(member_id)
        if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.all_joined:
            complete_join(step, group)
    elif member is not None and not member.keeps_session_by_waiting:
        step.log_event("member's session has expired", group, member, notable=True)
        remove_member(step, group, member)
        if group.is_in(ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            prepare_rebalance(step, group)
        elif group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.all_joined:
            complete_join(step, group)


def remove_member(step: GroupStep, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Take a member out; should its client still wait, it is told to begin anew."""
    step.respond_to_join(group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
    step.respond_to_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    step.expect_no_more(DeadlineKind.SESSION, group, member.member_id)


def assignment_written(step: GroupStep, group: ClassicGroup, write: AssignmentWrite, error: ErrorCode) -> None:
    """The leader's assignment is in the log, or could not be written. Meanwhile the group may have moved on."""
    if not group.is_in(ClassicGroupState.COMPLETING_REBALANCE) or group.generation != write.generation:
        return
    if error:
        _forget_assignments(step, group, error)
        prepare_rebalance(step, group)
        return
    for member in group.members.values():
        member.assignment = write.assignments.get(member.member_id, b"")
        answer = SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )
        if step.respond_to_sync(member, answer):
            # While it waited its session could not expire, and nothing was expected of it.
            step.extend_session(group, member)
    group.transition(ClassicGroupState.STABLE, step.now.wall_ms)
    step.log_event("group is stable", group)


def _forget_assignments(step: GroupStep, group: ClassicGroup, error: ErrorCode) -> None:
    for member in group.members.values():
        member.assignment = b""
        if step.respond_to_sync(member, SyncGroupResponse(error_code=error)):
            step.extend_session(group, member)
