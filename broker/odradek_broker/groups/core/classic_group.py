"""A classic consumer group: its state and its members.

Owns the bookkeeping that must agree with itself: states and their transitions, members, static members, given-out
member ids, who supports which protocol, the leader, the generation. Leaves what a request may do, and when, to
`classic_join`, `classic_rebalance` and `classic_session`, deadlines to `group_step`, records to `group_records`.

        Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
          ▲             │    ▲                  │                  │
          └─────────────┘    └──────────────────┴──────────────────┘
"""

from __future__ import annotations

from enum import Enum

from odradek_broker.coordination.core.java_hash import hash_map_order
from odradek_broker.coordination.core.step import Token
from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols
from odradek_broker.groups.core.consumer_protocol import subscribed_topics

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroupState(Enum):
    """A classic group's state; the value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MAY_FOLLOW: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""State → the states from which it is reached."""


class ClassicGroup:
    """Membership is kept in memory and written as a whole, as in Kafka: when an assignment is made, when the group
    becomes empty, when a static member returns. `group_records` turns a group into that record and back."""

    __slots__ = (
        "_subscribed_topics",
        "awaiting_join",
        "generation",
        "group_id",
        "initial_delay_left_ms",
        "leader",
        "members",
        "newcomers",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "supporters",
    )

    def __init__(self, group_id: str, wall_ms: int | None) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.state_since_ms = wall_ms
        """Wall clock; None in groups written by brokers before Kafka 2.1."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id → member id."""
        self.pending_members: set[str] = set()
        """Member ids given out with MEMBER_ID_REQUIRED whose owner has not come back yet."""
        self.pending_sync: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup; a dict for its order."""
        self.supporters: dict[str, int] = {}
        """Protocol name → number of members that support it."""
        self.awaiting_join = 0
        self.newcomers = False
        """Somebody joined during the initial delay, which may therefore be extended."""
        self.initial_delay_left_ms: int | None = None
        """What is left of the longest initial delay; None when the join phase is not an initial one."""
        self._subscribed_topics: frozenset[str] | None = None

    # -- states ---------------------------------------------------------------------------------------------------

    def is_in(self, *states: ClassicGroupState) -> bool:
        return self.state in states

    def transition(self, state: ClassicGroupState, wall_ms: int) -> None:
        assert self.state in MAY_FOLLOW[state], f"{self.group_id}: {self.state} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in MAY_FOLLOW[ClassicGroupState.PREPARING_REBALANCE]

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    def next_generation(self, wall_ms: int) -> None:
        """The join phase is over: count up, choose a protocol, and hold the members to it."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.learn_subscribed_topics()
        self.transition(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, wall_ms)
        self.pending_sync.clear()

    # -- members --------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, protocol_type: str, join: Token | None = None) -> None:
        """Take in a member whose protocols `supports` has accepted; the first one leads."""
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
        self.pending_members.discard(member.member_id)
        self._await_join(member, join)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join: Token | None,
    ) -> None:
        """A member tells about itself again; its join waits from now on (None: it does not wait)."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._await_join(member, join)

    def remove(self, member_id: str) -> None:
        """Forget a member or a given-out member id. Its waiting requests must have been answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self._await_join(member, None)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.pop(member_id, None)

    def rename_static(self, instance_id: str, old_id: str, new_id: str) -> ClassicGroupMember:
        """A static member came back: the same member under a new id, at the same place. Its requests must have been
        answered."""
        old = self.members[old_id]
        assert old.join is None
        assert old.sync is None
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
        self.pending_sync.pop(old_id, None)
        return new

    def take_join(self, member: ClassicGroupMember) -> Token | None:
        """The member's waiting join, which the caller answers; None when it does not wait."""
        token = member.join
        self._await_join(member, None)
        return token

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else choose a member that did. False when nobody did."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is not None:
            return True
        joined = next((member for member in self.members.values() if member.join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # -- protocols ------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """May a member with these protocols join? An empty group takes any; else one must be common to all members."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self.supporters.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Every member votes for its favourite among the common protocols; the most votes win."""
        candidates = {name for name, count in self.supporters.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        # Kafka breaks a tie by the order of a Java HashMap; two members that prefer different assignors show it.
        return max(hash_map_order(votes), key=votes.__getitem__)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members consume; None when the coordinator cannot tell."""
        return self._subscribed_topics

    def learn_subscribed_topics(self) -> None:
        """Read the members' subscriptions, which only the consumer protocol lets us do."""
        if not self.uses_consumer_protocol:
            self._subscribed_topics = None
        elif not self.members:
            self._subscribed_topics = frozenset()
        else:
            self._subscribed_topics = subscribed_topics(
                member.metadata(self.protocol) for member in self.members.values()
            )

    def is_subscribed_to(self, topic: str) -> bool:
        """When in doubt a consumer group counts as subscribed, so that its offsets are kept."""
        if self._subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self._subscribed_topics

    # -- counting -------------------------------------------------------------------------------------------------

    def _count_protocols(self, member: ClassicGroupMember, step: int) -> None:
        for name, _ in member.protocols:
            count = self.supporters.get(name, 0) + step
            if count:
                self.supporters[name] = count
            else:
                del self.supporters[name]

    def _await_join(self, member: ClassicGroupMember, token: Token | None) -> None:
        self.awaiting_join += (token is not None) - (member.join is not None)
        member.join = token
