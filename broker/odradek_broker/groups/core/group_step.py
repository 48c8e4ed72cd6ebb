"""One step of a group coordinator: what comes in with every input, and what goes out.

Owns the vocabulary between the rules of groups and the shell: settings, the caller, deadlines, waiting answers,
records to write, and what has to be settled once they are written. Leaves the rules to `group_join`,
`group_rebalance` and `group_session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.coordination.core.deadlines import DeadlineQueue, Instant
from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.group_member import Member, Protocols, Token
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_wire.errors import ErrorCode
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


class Caller(NamedTuple):
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

Answer = JoinGroupResponse | SyncGroupResponse


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


class Happening(NamedTuple):
    """Something that an operator may want to read: what happened to which group, and to which member."""

    event: str
    group: str
    generation: int
    member: Member | None
    notable: bool
    """Somebody was thrown out; the rest is the ordinary course of a group."""


@dataclass(slots=True)
class Step:
    """Filled while one input is worked on. The shell gives the answers, appends the records as one batch, and reports
    the outcome for `write`, if there is one, with `GroupShard.written`."""

    now: Instant
    settings: GroupSettings
    deadlines: Deadlines
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Token, Answer]] = field(default_factory=list)
    write: Write | None = None
    happened: list[Happening] = field(default_factory=list)

    def tell(self, event: str, group: ClassicGroup, member: Member | None = None, *, notable: bool = False) -> None:
        self.happened.append(Happening(event, group.group_id, group.generation, member, notable))

    def answer(self, token: Token | None, answer: Answer) -> None:
        """Nobody to answer is no error: the member may not be waiting."""
        if token is not None:
            self.answers.append((token, answer))

    def answer_join(self, group: ClassicGroup, member: Member, answer: JoinGroupResponse) -> None:
        self.answer(group.take_join(member), answer)

    def answer_sync(self, member: Member, answer: SyncGroupResponse) -> bool:
        """True if the member was waiting."""
        token, member.sync = member.sync, None
        self.answer(token, answer)
        return token is not None

    def extend_session(self, group: ClassicGroup, member: Member) -> None:
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
