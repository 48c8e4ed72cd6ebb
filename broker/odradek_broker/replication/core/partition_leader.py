"""One partition, seen from its leader: follower progress, ISR, high watermark.

Owns two rules: the high watermark is the smallest log end offset of the in-sync replicas and never moves back; a
follower joins the ISR when it has caught up, and must leave after a lag of `replica.lag.time.max.ms`. Leaves the log
and waiting requests to the shell (`partition.py`), and decisions about the ISR to the controller, to which the leader
proposes them.

The first rule is `PartitionLeader.advance_high_watermark`, with `under_min_isr`. The places below keep a copy of its
result or of its input, or take a shortcut, because a function call costs too much there, or because the Fetches of an
idle partition are not recorded. Check each of them when you change the rule, the condition for being in sync, or the
condition for an append:

- `PartitionLeader.is_sole_replica`: a single replica, so that the log end offset is the high watermark. Set at the
  start of an epoch and by `replicas_changed`.
- `Partition.append`: with `is_sole_replica`, and unless records wait for the disk, advances the high watermark and the
  log end offset of the core without a call of the core.
- `Partition.maybe_shrink_isr`: with `is_sole_replica`, does not ask the core.
- `Partition.high_watermark`: a copy for readers. Set from the core's effects, at the start of an epoch, and by `append`
  with `is_sole_replica`; on a follower from the leader's Fetch responses and by truncation; from the checkpoint when
  the log is opened.
- `Partition.needs_full_checks`: whether `under_min_isr`, an internal topic or syncing keeps Produce off its short
  checks. Set by `Partition._update_checks` at the start of an epoch, with a new ISR and with a new
  `min.insync.replicas`.
- `produce_append.append_usual_batch`: decides by `needs_full_checks` and `is_sole_replica` that acks=all need not wait.
- `FollowerProgress.idle_session`: a follower for which the partition is idle counts as caught up (`caught_up_ms`);
  `idle_partitions.is_idle_for_follower` asks whether the follower is in `isr`.
- `ReplicaFetcher._throttled_caught_up`: the follower's own view of whether it is in sync, because a replica in sync is
  not throttled.
- `PartitionLeader.expected_to_join`: followers outside the ISR for which the high watermark waits; kept between their
  Fetches.
- `PartitionLeader.min_isr` and `Partition.min_insync_replicas`: copies of `min.insync.replicas`; a partition keeps
  its own for the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

NEVER_MS = -(1 << 62)


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """The new high watermark; the shell tries the requests again that wait for it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller to change the ISR (AlterPartition). Until the decision the maximal ISR counts, the old and the
    proposed one together: the high watermark must be right for either (KIP-497)."""

    isr: frozenset[int]


Effect = HighWatermarkAdvanced | ProposeIsr


class IdleSession(Protocol):
    """The fetch session of a follower for which a partition is idle (`idle_partitions`)."""

    @property
    def used_ms(self) -> int:
        """The time of the follower's last Fetch of any partition."""


@dataclass(slots=True)
class FollowerProgress:
    """The leader's record of one follower's Fetches."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = -1
    broker_epoch: int = -1
    """The broker epoch in the last Fetch: after an unclean restart a broker may lack records that it had (KIP-903)."""
    idle_session: IdleSession | None = None
    """Set while the partition is idle for the follower: then Fetches of the partition are not recorded."""

    @property
    def caught_up_ms(self) -> int:
        """The last time at which the follower was known to have every record."""
        session = self.idle_session
        return self.last_caught_up_ms if session is None else max(self.last_caught_up_ms, session.used_ms)

    def become_idle(self, session: IdleSession) -> None:
        """Count each Fetch of the session as one that finds the follower caught up."""
        self.idle_session = session

    def end_idle(self, session: IdleSession) -> None:
        """Do as `become_active`, unless the partition is idle in another session, that of a newer connection."""
        if self.idle_session is session:
            self.become_active()

    def become_active(self) -> None:
        """Record the follower's Fetches again; until now it was caught up."""
        if self.idle_session is not None:
            self.last_caught_up_ms = self.last_fetch_ms = self.caught_up_ms
            self.idle_session = None


class PartitionLeader:
    """The leader's view of one partition in one leader epoch.

    With `is_sole_replica` the shell (`Partition.append`) advances the high watermark itself: a profile of unbatched
    produce shows the cost of a call."""

    __slots__ = (
        "broker_id",
        "expected_to_join",
        "followers",
        "high_watermark",
        "is_sole_replica",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log_end_offset",
        "min_isr",
        "partition_epoch",
        "proposed_isr",
        "replicas",
    )

    def __init__(
        self,
        broker_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: frozenset[int],
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        min_isr: int = 1,
        synced_offset: int | None = None,
    ) -> None:
        """`synced_offset` is the end of the records that are on the disk, given if acknowledgements wait for the
        disk."""
        assert broker_id in replicas, "a leader is one of the replicas"
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = log_end_offset
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.proposed_isr: frozenset[int] | None = None
        self.log_end_offset = log_end_offset if synced_offset is None else synced_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.followers = {
            replica: FollowerProgress(last_caught_up_ms=now_ms if replica in isr else NEVER_MS)
            for replica in replicas
            if replica != broker_id
        }
        self.expected_to_join: frozenset[int] = frozenset()
        """Followers outside the ISR that were caught up at their last Fetch. The high watermark waits for them, because
        under load they could never join otherwise (Kafka's shouldWaitForReplicaToJoinIsr)."""
        self.is_sole_replica = replicas == (broker_id,)
        self.min_isr = min_isr
        self.advance_high_watermark()

    def record_log_end_offset(self, log_end_offset: int) -> list[Effect]:
        """Record the leader's log end offset after an append, or the end of its records that are on the disk."""
        assert log_end_offset >= self.log_end_offset
        self.log_end_offset = log_end_offset
        return self.advance_high_watermark()

    def follower_fetched(
        self,
        follower: int,
        fetch_offset: int,
        follower_log_start: int,
        now_ms: int,
        *,
        broker_epoch: int = -1,
        may_join: bool = True,
    ) -> list[Effect]:
        """Record a Fetch, which proves that the follower has every record below its offset.

        `may_join` says that the controller would accept this broker, in this epoch, in the ISR."""
        progress = self.followers.get(follower)
        if progress is None:
            return []
        progress.become_active()
        progress.broker_epoch = broker_epoch
        caught_up = True
        if fetch_offset >= self.log_end_offset:
            progress.last_caught_up_ms = now_ms
        elif fetch_offset >= progress.leader_end_at_last_fetch >= 0:
            # The follower has every record that the log had at its last Fetch: it was caught up then.
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        else:
            caught_up = False
        progress.last_fetch_ms = now_ms
        progress.leader_end_at_last_fetch = self.log_end_offset
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = follower_log_start
        if follower not in self.isr:
            self.expected_to_join = (
                self.expected_to_join | {follower} if caught_up and may_join else self.expected_to_join - {follower}
            )
        effects = self.advance_high_watermark()
        if (
            follower not in self.isr
            and may_join
            and self.proposed_isr is None
            and fetch_offset >= self.high_watermark
            and fetch_offset >= self.leader_epoch_start_offset
        ):
            effects.append(self._propose(self.isr | {follower}))
        return effects

    def maybe_shrink_isr(self, now_ms: int, lag_time_max_ms: int) -> list[Effect]:
        """Propose an ISR without the followers that last caught up longer ago than `replica.lag.time.max.ms`."""
        slow = {
            replica
            for replica, progress in self.followers.items()
            if progress.log_end_offset != self.log_end_offset and now_ms - progress.caught_up_ms > lag_time_max_ms
        }
        effects: list[Effect] = []
        if self.expected_to_join & slow:
            self.expected_to_join -= slow
            effects = self.advance_high_watermark()
        if self.proposed_isr is None and self.isr & slow:
            effects.append(self._propose(self.isr - slow))
        return effects

    def apply_isr(self, isr: frozenset[int], partition_epoch: int) -> list[Effect]:
        """Apply the ISR that the controller has decided on, whether this leader proposed it or not."""
        if partition_epoch < self.partition_epoch:
            return []
        self.isr = isr
        self.expected_to_join = frozenset()
        self.partition_epoch = partition_epoch
        self.proposed_isr = None
        return self.advance_high_watermark()

    def replicas_changed(self, replicas: tuple[int, ...]) -> list[Effect]:
        """Apply new replicas within this leader epoch: a reassignment adds some, or removes some outside the ISR."""
        self.replicas = replicas
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress()
            for replica in replicas
            if replica != self.broker_id
        }
        self.expected_to_join &= frozenset(replicas)
        self.is_sole_replica = replicas == (self.broker_id,)
        return self.advance_high_watermark()

    def stop_waiting_for(self, follower: int) -> list[Effect]:
        """Stop waiting for the follower to join the ISR, because its broker is fenced or shuts down."""
        if follower not in self.expected_to_join:
            return []
        self.expected_to_join -= {follower}
        return self.advance_high_watermark()

    def drop_proposed_isr(self) -> list[Effect]:
        """Drop the proposal, which the controller has not accepted; a later Fetch may lead to another."""
        self.proposed_isr = None
        return self.advance_high_watermark()

    def broker_epoch_of(self, replica: int, own: int) -> int:
        """Return the broker epoch of the replica's last Fetch, -1 before the first; for this broker return `own`."""
        progress = self.followers.get(replica)
        return own if progress is None else progress.broker_epoch

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Return the smallest log start offset of all live replicas, which DeleteRecords waits for and returns."""
        starts = [progress.log_start_offset for replica, progress in self.followers.items() if is_alive(replica)]
        return min([log_start_offset, *starts])

    def _propose(self, isr: frozenset[int]) -> ProposeIsr:
        self.proposed_isr = isr
        return ProposeIsr(isr)

    def set_min_isr(self, min_isr: int) -> list[Effect]:
        """Apply a new `min.insync.replicas`."""
        self.min_isr = min_isr
        return self.advance_high_watermark()

    @property
    def under_min_isr(self) -> bool:
        """Whether the ISR is smaller than `min.insync.replicas`, so that the high watermark does not advance (KIP-966).
        A partition with fewer replicas than that needs all of them."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    def advance_high_watermark(self) -> list[Effect]:
        """Advance the high watermark to the smallest log end offset of the ISR and of the replicas about to join it."""
        if self.under_min_isr:
            return []
        waited_for = self.isr | self.expected_to_join
        if self.proposed_isr is not None:
            waited_for |= self.proposed_isr
        ends = [progress.log_end_offset for replica, progress in self.followers.items() if replica in waited_for]
        reached = min([self.log_end_offset, *ends])
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [HighWatermarkAdvanced(reached)]
