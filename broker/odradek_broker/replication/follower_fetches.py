"""What a leader does for followers that fetch from it, and which replica a consumer had better read from.

Owns the checks of a follower's fetch and the record of its progress (KIP-903: a broker's new incarnation need not hold
what the old one held), and the choice of a replica in the consumer's rack (KIP-392). Leaves reading to the Fetch
handler, and the partitions that a Fetch can skip to `idle_partitions`.
"""

from __future__ import annotations

from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.replication.core.fetch_session import FetchedPartition
from odradek_broker.replication.core.replication_quota import ReplicationQuota
from odradek_broker.replication.partition import Partition
from odradek_wire.errors import ErrorCode


class Follower:
    """The broker that a Fetch request comes from; epoch -1: it does not say which incarnation it is."""

    __slots__ = ("_epoch", "_may_join", "_quota", "_state", "id")

    def __init__(self, state: BrokerState, quota: ReplicationQuota, follower: int, epoch: int) -> None:
        """`quota` limits what this broker sends of throttled replicas."""
        self._state = state
        self._quota = quota
        self.id = follower
        self._epoch = epoch
        registration = state.image.brokers.get(follower)
        self._may_join = (
            registration is not None
            and state.image.is_active(follower)
            # In ZooKeeper mode only the controller knows the epochs of all brokers, and checks them.
            and (epoch == registration.epoch or -1 in (epoch, registration.epoch))
        )

    def error(self, partition: Partition, leader_epoch: int) -> ErrorCode:
        """Whether it is a replica. With an epoch in the request it knows more than we do: the metadata is on its
        way."""
        leader = partition.leader
        progress = None if leader is None else leader.followers.get(self.id)
        if progress is not None:
            # A fetch of an incarnation that is over says nothing of what the present one holds.
            stale = -1 < self._epoch < progress.broker_epoch
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if stale else ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH

    def should_throttle(self, partition: Partition) -> bool:
        """Whether it gets nothing of the partition now, because it is not in sync and what this broker may send is used
        up (KIP-73)."""
        throttle, leader = self._quota, partition.leader
        return (
            throttle.is_throttled(partition.topic, partition.index)
            and leader is not None
            and self.id not in leader.isr
            and throttle.is_exceeded(self._state.timers.now_ms())
        )

    def record_sent(self, partition: Partition, count: int) -> None:
        """So many bytes are sent to it."""
        throttle = self._quota
        if throttle.is_throttled(partition.topic, partition.index):
            throttle.record(count, self._state.timers.now_ms())

    def record_fetch(self, partition: Partition, wanted: FetchedPartition) -> None:
        """It fetches at this offset."""
        partition.follower_fetched(
            self.id,
            wanted.fetch_offset,
            wanted.log_start_offset,
            self._state.timers.now_ms(),
            self._epoch,
            self._may_join,
        )


class FollowerFetches:
    """The fetches of followers that wait at this broker. When there is something new to be copied from here they are
    answered, so that nobody waits for a follower that waits: Kafka's would ask for it `replica.fetch.wait.max.ms`
    later."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.watchers = Watchers()
        self.calls = 0
        self._purgatory = purgatory

    def call(self) -> None:
        self.calls += 1
        if self.watchers.operations:
            self._purgatory.check_and_complete(self.watchers)


def preferred_replica(state: BrokerState, partition: Partition, rack: str, fetch_offset: int) -> int | None:
    """An in-sync follower in the consumer's rack that has what it wants, the furthest of them; None: stay here.

    Only with `replica.selector.class` set to Kafka's rack-aware selector."""
    leader = partition.leader
    if not rack or leader is None or leader.is_sole_replica or not state.config.selects_by_rack:
        return None
    brokers = state.image.brokers
    if brokers[state.node_id].rack == rack:
        return None
    found = [
        (progress.log_end_offset, progress.last_caught_up_ms, replica)
        for replica, progress in leader.followers.items()
        if replica in leader.isr
        and progress.log_start_offset <= fetch_offset <= progress.log_end_offset
        and (registration := brokers.get(replica)) is not None
        and not registration.fenced
        and registration.rack == rack
    ]
    return max(found)[2] if found else None
