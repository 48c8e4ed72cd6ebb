"""One step of a group coordinator: what comes in with every input, and what goes out.

Owns the vocabulary between the rules of groups and the shell: settings, the caller, deadlines, waiting answers,
records to write, and what has to be settled once they are written. Leaves the rules to `classic_join`,
`classic_rebalance` and `classic_session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.coordination.core.deadlines import DeadlineQueue
from odradek_broker.coordination.core.step import CoordinatorEvent, Step, Token
from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.join_group import JoinGroupResponse
from odradek_wire.messages.sync_group import SyncGroupResponse

NO_MEMBER = ""
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member's join may wait (Kafka's constant): its client may be gone, and would not be missed."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings for groups and offsets; the names are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000

    def allow_session_timeout(self, timeout_ms: int) -> bool:
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


class GroupClient(NamedTuple):
    """Who sent a request. `random_id` becomes part of the member id if one has to be made."""

    client_id: str
    client_host: str
    api_version: int
    random_id: str = ""


class DeadlineKind(IntEnum):
    """What is over when a deadline passes. The value is the order among equal deadlines of one group."""

    SESSION = 0
    """A member, or a member id that was given out and never used, has been silent for too long."""
    JOIN = 1
    """The join phase of a rebalance has taken as long as it may."""
    SYNC = 2
    """Members that joined have not asked for their assignment."""


class DeadlineKey(NamedTuple):
    kind: DeadlineKind
    group_id: str
    member_id: str = ""


Deadlines = DeadlineQueue[DeadlineKey]


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """The leader's assignment is being written; once it is, the group is stable and everybody gets its part."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementWrite:
    """A static member came back under a new id without a rebalance; if that cannot be written it never happened."""

    group_id: str
    instance_id: str
    old_id: str
    new_id: str
    leader_before: str | None
    protocols_before: Protocols
    rebalance_timeout_ms_before: int
    session_timeout_ms_before: int
    api_version: int


Write = AssignmentWrite | ReplacementWrite


@dataclass(slots=True)
class GroupStep(Step[CoordinatorRecord, Write]):
    """A step of the group coordinator. The outcome for `write`, if there is one, goes to `GroupShard.written`."""

    settings: GroupSettings = field(kw_only=True)
    deadlines: Deadlines = field(kw_only=True)

    def log_event(
        self, event: str, group: ClassicGroup, member: ClassicGroupMember | None = None, *, notable: bool = False
    ) -> None:
        facts: dict[str, object] = {"group": group.group_id, "generation": group.generation}
        if member is not None:
            facts |= {"member": member.member_id, "client_id": member.client_id, "address": member.client_host[1:]}
        self.events.append(CoordinatorEvent(event, facts, notable))

    def respond(self, token: Token | None, response: Message) -> None:
        """Complete a pending request; None: the member has none."""
        if token is not None:
            self.responses.append((token, response))

    def respond_to_join(self, group: ClassicGroup, member: ClassicGroupMember, answer: JoinGroupResponse) -> None:
        self.respond(group.take_join(member), answer)

    def respond_to_sync(self, member: ClassicGroupMember, answer: SyncGroupResponse) -> bool:
        """True if the member was waiting."""
        token, member.sync = member.sync, None
        self.respond(token, answer)
        return token is not None

    def extend_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """A sign of life: the session timeout begins anew."""
        self.expect(DeadlineKind.SESSION, group, member.session_timeout_ms, member.member_id)

    def expect(self, kind: DeadlineKind, group: ClassicGroup, delay_ms: int, member_id: str = "") -> None:
        self.deadlines.set(DeadlineKey(kind, group.group_id, member_id), self.now.timeout_ms + delay_ms)

    def expect_no_more(self, kind: DeadlineKind, group: ClassicGroup, member_id: str = "") -> None:
        self.deadlines.cancel(DeadlineKey(kind, group.group_id, member_id))


def join_error(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Versions that cannot carry a null protocol name are the API module's business."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def join_answer(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The group's current generation as this member sees it: only the leader is told who the others are."""
    leads = group.leader == member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in group.members.values()
        ]
        if leads
        else [],
    )
