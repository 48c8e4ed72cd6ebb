"""A classic consumer group: its state and its members.

Owns the bookkeeping that must be consistent: states and their transitions, members, static members, pending member ids,
supported protocols, the leader, the generation; and the checks of requests on the group's offsets. Leaves the rules of
JoinGroup, SyncGroup, Heartbeat and LeaveGroup to `classic_join`, `classic_rebalance` and `classic_session`, and the
record of a group to `classic_records`.

        Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
          ▲             │    ▲                  │                  │
          └─────────────┘    └──────────────────┴──────────────────┘
"""

from __future__ import annotations

from enum import Enum

from odradek_broker.coordination.core.java_hash import hash_map_order
from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols
from odradek_broker.groups.core.committed_offset import CommittedOffset
from odradek_broker.groups.core.consumer_protocol import subscribed_topics
from odradek_broker.groups.core.group import DescribedGroup, ListedGroup, OffsetExpirationCondition
from odradek_broker.groups.core.group_records import CoordinatorRecord, GroupMetadataRecord
from odradek_broker.groups.core.group_step import NO_MEMBER, GroupStep
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsResponse

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicDeadline(Enum):
    """A kind of deadline of a classic group."""

    SESSION = "session"
    """A member has sent no heartbeat within its session timeout, or no client has used a pending member id."""
    JOIN = "join"
    """The join phase of a rebalance has reached the rebalance timeout."""
    SYNC = "sync"
    """Members that joined have not sent SyncGroup within the rebalance timeout."""


class ClassicGroupState(Enum):
    """A classic group's state; the value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""State → the states that may precede it."""


class ClassicGroup:
    """The members are kept in memory. As in Kafka, a snapshot of the group is written when the leader has sent an
    assignment, when the group becomes empty, and when a static member returns."""

    __slots__ = (
        "_subscribed_topics",
        "current_state_timestamp_ms",
        "generation",
        "group_id",
        "initial_delay_left_ms",
        "leader",
        "members",
        "new_member_added",
        "num_members_awaiting_join",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "supported_protocols",
    )

    def __init__(self, group_id: str, wall_ms: int | None) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.current_state_timestamp_ms = wall_ms
        """On the wall clock; None if a broker before Kafka 2.1 has written the group."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id → member id."""
        self.pending_join_members: set[str] = set()
        """Member ids returned with MEMBER_ID_REQUIRED that no JoinGroup has used yet."""
        self.pending_sync_members: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup, in the order of joining (a set has no order)."""
        self.supported_protocols: dict[str, int] = {}
        """Protocol name → number of members that support it."""
        self.num_members_awaiting_join = 0
        self.new_member_added = False
        """Whether a member has joined during the initial delay, which is then extended."""
        self.initial_delay_left_ms: int | None = None
        """The time by which the initial delay may still be extended; None unless an empty group rebalances."""
        self._subscribed_topics: frozenset[str] | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    # -- states ---------------------------------------------------------------------------------------------------

    def is_in(self, *states: ClassicGroupState) -> bool:
        return self.state in states

    def transition(self, state: ClassicGroupState, wall_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.group_id}: {self.state} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[ClassicGroupState.PREPARING_REBALANCE]

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase: increase the generation and select the protocol of all members."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.compute_subscribed_topics()
        self.transition(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, wall_ms)
        self.pending_sync_members.clear()

    # -- members --------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, protocol_type: str, join: DeferredResponse | None = None) -> None:
        """Add a member whose protocols `supports_protocols` has accepted; the first member is the leader."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.pending_join_members.discard(member.member_id)
        self._set_awaiting_join(member, join)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join: DeferredResponse | None,
    ) -> None:
        """Store the protocols and timeouts of a member that rejoins. `join` is its pending JoinGroup, if any."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._set_awaiting_join(member, join)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. The caller has completed its pending requests."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self._set_awaiting_join(member, None)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.pop(member_id, None)

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> ClassicGroupMember:
        """Replace the id of a static member that has returned, at the same place in the order of members.

        The caller has completed its pending requests."""
        old = self.members[old_id]
        assert old.awaiting_join is None
        assert old.awaiting_sync is None
        new = ClassicGroupMember(
            member_id=new_id,
            instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        self.members[new_id] = new
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        self.pending_sync_members.pop(old_id, None)
        return new

    def take_awaiting_join(self, member: ClassicGroupMember) -> DeferredResponse | None:
        """Return the member's pending JoinGroup, which the caller completes; None when there is none."""
        deferred = member.awaiting_join
        self._set_awaiting_join(member, None)
        return deferred

    @property
    def has_all_members_joined(self) -> bool:
        return self.num_members_awaiting_join == len(self.members) and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else elect a member that has. Return False if no member has rejoined."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that the member exists. A static member is fenced if another client has its instance id now."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- protocols ------------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols may join: an empty group accepts any, else one must be supported by all
        members."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Select the protocol with the most votes: each member votes for one that all members support."""
        candidates = {name for name, count in self.supported_protocols.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        # Kafka breaks a tie by the iteration order of a Java HashMap.
        return max(hash_map_order(votes), key=votes.__getitem__)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None when the coordinator does not know them."""
        return self._subscribed_topics

    def compute_subscribed_topics(self) -> None:
        """Read the members' subscriptions; only the consumer protocol has them."""
        if not self.uses_consumer_protocol:
            self._subscribed_topics = None
        elif not self.members:
            self._subscribed_topics = frozenset()
        else:
            self._subscribed_topics = subscribed_topics(
                member.metadata(self.protocol_name) for member in self.members.values()
            )

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True for every topic if the members use the consumer protocol but their topics are not known."""
        if self._subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self._subscribed_topics

    # -- offsets --------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> ErrorCode:
        """Check that the commit comes from a member in the current generation, or that the group is empty.

        A commit without a generation comes from an admin client, or from a consumer that assigns its partitions itself.
        A TxnOffsetCommit is also accepted without a member (before v3), and during a rebalance, because its transaction
        is committed or aborted as a whole."""
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            error = self.validate_member(member_id, instance_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and not self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # The new generation has no assignment yet.
        if not transactional and self.is_in(ClassicGroupState.COMPLETING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        """Refuse a deletion while the group has members without the consumer protocol: their topics are not known."""
        if not self.is_empty and not self.uses_consumer_protocol:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def offsets_committed(self, step: GroupStep, member_id: str) -> None:
        if self.is_in(ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE) and member_id in self.members:
            self.extend_session(step, self.members[member_id])

    def extend_session(self, step: GroupStep, member: ClassicGroupMember) -> None:
        """Restart the member's session timeout."""
        step.set_deadline(ClassicDeadline.SESSION, self.group_id, member.session_timeout_ms, member.member_id)

    @property
    def should_expire(self) -> bool:
        return True

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """Return when the retention of offsets begins:

        - in a group that never had members, and in a stable group with known subscriptions: at the commit;
        - in an empty group: when it became empty.

        Return None, so that offsets do not expire, during a rebalance or when the subscriptions are not known."""
        if self.protocol_type is not None and self.is_empty:
            return self._since_empty
        if self.protocol_type is None or (self._subscribed_topics is not None and self.is_in(ClassicGroupState.STABLE)):
            return _since_commit
        return None

    def _since_empty(self, offset: CommittedOffset) -> int:
        return (
            offset.commit_timestamp_ms if self.current_state_timestamp_ms is None else self.current_state_timestamp_ms
        )

    # -- administration -------------------------------------------------------------------------------------------

    def as_listed_group(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=self.type.value,
        )

    def as_described_group(self) -> DescribedGroup:
        """Return the group for DescribeGroups, with the members' metadata only if the group is stable, as in Kafka."""
        stable = self.is_in(ClassicGroupState.STABLE)
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(self.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return [GroupMetadataRecord(self.group_id, None)]

    # -- counting -------------------------------------------------------------------------------------------------

    def _count_protocols(self, member: ClassicGroupMember, difference: int) -> None:
        for name, _ in member.protocols:
            count = self.supported_protocols.get(name, 0) + difference
            if count:
                self.supported_protocols[name] = count
            else:
                del self.supported_protocols[name]

    def _set_awaiting_join(self, member: ClassicGroupMember, deferred: DeferredResponse | None) -> None:
        self.num_members_awaiting_join += (deferred is not None) - (member.awaiting_join is not None)
        member.awaiting_join = deferred


def _since_commit(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms
