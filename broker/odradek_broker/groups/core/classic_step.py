"""The parts of a step that only classic groups have: their deadlines, writes, and responses to JoinGroup and SyncGroup.

Leaves the rules to `classic_join`, `classic_rebalance` and `classic_session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek_broker.groups.core.classic_group import ClassicDeadline, ClassicGroup
from odradek_broker.groups.core.group_step import NO_MEMBER, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupResponse
from odradek_wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first JoinGroup of a member may be pending (a constant in Kafka): the client sends no heartbeats while
it has no member id, and may have disconnected."""


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """The write of the leader's assignment, after which the group is stable and members get their assignments."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementWrite:
    """The write of a static member's new id, without a rebalance; if it fails, the old id is restored."""

    group_id: str
    instance_id: str
    old_id: str
    new_id: str
    leader_before: str | None
    protocols_before: Protocols
    rebalance_timeout_ms_before: int
    session_timeout_ms_before: int
    api_version: int


def log_event(
    step: GroupStep,
    event: str,
    group: ClassicGroup,
    member: ClassicGroupMember | None = None,
    *,
    notable: bool = False,
) -> None:
    step.log_event(event, group.group_id, group.generation, member, notable=notable)


def respond_to_join(
    step: GroupStep, group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResponse
) -> None:
    """Complete the member's pending JoinGroup, if there is one."""
    step.respond(group.take_awaiting_join(member), response)


def respond_to_sync(step: GroupStep, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Complete the member's pending SyncGroup; return whether there was one."""
    deferred, member.awaiting_sync = member.awaiting_sync, None
    step.respond(deferred, response)
    return deferred is not None


def set_deadline(
    step: GroupStep, kind: ClassicDeadline, group: ClassicGroup, delay_ms: int, member_id: str = NO_MEMBER
) -> None:
    step.set_deadline(kind, group.group_id, delay_ms, member_id)


def cancel_deadline(step: GroupStep, kind: ClassicDeadline, group: ClassicGroup, member_id: str = NO_MEMBER) -> None:
    step.cancel_deadline(kind, group.group_id, member_id)


def join_error(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Return a response with an error. The API module replaces the null protocol name in versions without nulls."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def join_response(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return a response with the group's current generation. Only the leader gets the list of members."""
    is_leader = group.leader == member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
        if is_leader
        else [],
    )
