"""Fetches of followers at the leader, and the replica from which a consumer should read.

Owns the checks of a follower's Fetch and the record of its progress (KIP-903: a restarted broker may lack records that
it had before), and the choice of a replica in the consumer's rack (KIP-392). Leaves reading to the Fetch handler, and
the partitions that a Fetch can skip to `idle_partitions`.
"""

from __future__ import annotations

from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.replication.core.fetch_session import FetchedPartition
from odradek_broker.replication.core.replication_quota import ReplicationQuota
from odradek_broker.replication.partition import Partition
from odradek_wire.errors import ErrorCode


class Follower:
    """The broker that sent a Fetch request; its epoch is -1 if the request has none."""

    __slots__ = ("_epoch", "_may_join", "_quota", "_state", "id")

    def __init__(self, state: BrokerState, quota: ReplicationQuota, follower: int, epoch: int) -> None:
        """`quota` limits the bytes of throttled replicas."""
        self._state = state
        self._quota = quota
        self.id = follower
        self._epoch = epoch
        registration = state.image.brokers.get(follower)
        self._may_join = (
            registration is not None
            and state.image.is_active(follower)
            # In ZooKeeper mode only the controller knows the epochs of all brokers and checks them.
            and (epoch == registration.epoch or -1 in (epoch, registration.epoch))
        )

    def error(self, partition: Partition, leader_epoch: int) -> ErrorCode:
        """Return the error for a broker that is not a replica here, or that has restarted since it sent the Fetch. A
        leader epoch in the request means that the other broker has newer metadata than this one."""
        leader = partition.leader
        progress = None if leader is None else leader.followers.get(self.id)
        if progress is not None:
            # A Fetch that the broker sent before its restart proves nothing about its present log.
            stale = -1 < self._epoch < progress.broker_epoch
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if stale else ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH

    def should_throttle(self, partition: Partition) -> bool:
        """Return whether the follower gets no records of the partition now, because it is not in sync and the quota is
        exceeded (KIP-73)."""
        quota, leader = self._quota, partition.leader
        return (
            quota.is_throttled(partition.topic, partition.index)
            and leader is not None
            and self.id not in leader.isr
            and quota.is_exceeded(self._state.timers.now_ms())
        )

    def record_sent(self, partition: Partition, count: int) -> None:
        """Record `count` bytes of the partition that are sent to the follower."""
        quota = self._quota
        if quota.is_throttled(partition.topic, partition.index):
            quota.record(count, self._state.timers.now_ms())

    def record_fetch(self, partition: Partition, wanted: FetchedPartition) -> None:
        """Record the follower's fetch offset."""
        partition.follower_fetched(
            self.id,
            wanted.fetch_offset,
            wanted.log_start_offset,
            self._state.timers.now_ms(),
            self._epoch,
            self._may_join,
        )


class FollowerFetches:
    """The Fetches of followers that wait at this broker. They complete when this broker becomes the leader of more
    partitions or gets new followers, so that each follower can add them to its next Fetch. Kafka's brokers let them
    wait up to `replica.fetch.wait.max.ms`."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.watchers = Watchers()
        self.completions = 0
        """The number of calls of `complete_all`."""
        self._purgatory = purgatory

    def complete_all(self) -> None:
        """Complete the Fetches that wait, with whatever they have read."""
        self.completions += 1
        if self.watchers.operations:
            self._purgatory.check_and_complete(self.watchers)


def preferred_replica(state: BrokerState, partition: Partition, rack: str, fetch_offset: int) -> int | None:
    """Return the in-sync follower in the consumer's rack with the largest log end offset among those that have the
    fetch offset; None if there is none, or the leader is in that rack.

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
