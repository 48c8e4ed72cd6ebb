"""One partition, seen from its leader: follower progress, ISR, high watermark.

Owns the rule that the high watermark is the smallest log end offset in the in-sync replicas and never retreats, and
when a follower may join or must leave them. Leaves the log and the requests that wait to the shell (`partition.py`),
and changes of the ISR to the controller: here they are only proposed.

The rule is `PartitionLeader._advance_high_watermark`, with `under_min_isr`. These places keep its result or a
shortcut of it, because a function call costs too much there or because nothing is recorded meanwhile. A change of the
rule, of what makes a replica in sync, or of who may append must visit each:

- `PartitionLeader.is_sole_replica`: a single replica, so that the log's end is the high watermark. Set at the start of an epoch
  and by `replicas_changed`.
- `Partition.append`: with `is_sole_replica`, moves the high watermark and the log's end in the core without a call of the core.
- `Partition.high_watermark`: a copy for readers. Set from the core's effects, at the start of an epoch, by `append`
  with `is_sole_replica`; on a follower from the leader's Fetch responses.
- `Partition.needs_full_checks`: whether `under_min_isr` (or an internal topic, or syncing) keeps Produce off its short checks.
  Set by `Partition._update_checks` at the start of an epoch, with a new ISR and with a new `min.insync.replicas`.
- `produce_append.append_usual_batch`: `needs_full_checks` and `is_sole_replica` decide that acks=all waits for nothing.
- `FollowerProgress.idle_session`: while a partition is idle for a follower, that counts as caught up
  (`caught_up_ms`); `idle_partitions.is_idle_for_follower` asks whether the follower is in `isr`.
- `PartitionLeader.joining`: followers that are not in sync, for which the high watermark waits; kept between their
  Fetches.
- `PartitionLeader.min_isr` and `Partition.min_insync_replicas`: copies of `min.insync.replicas`; a partition keeps
  its own for the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType, Protocol

BrokerId = NewType("BrokerId", int)
NEVER_MS = -(1 << 62)


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Requests that wait for this offset may be looked at again."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller to change the in-sync replicas (AlterPartition). Until it answers the old ISR counts, widened
    by the new members: the high watermark must hold whichever way the controller decides (KIP-497)."""

    isr: frozenset[int]


Effect = HighWatermarkAdvanced | ProposeIsr


class IdleSession(Protocol):
    """The fetch session of a follower for which the partition is idle (`idle_partitions`)."""

    @property
    def used_ms(self) -> int:
        """When the follower last fetched anything."""


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower, by its fetches."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = -1
    broker_epoch: int = -1
    """Which incarnation of the broker fetched: another one need not hold what this one held (KIP-903)."""
    idle_session: IdleSession | None = None
    """There while the partition is idle for the follower: its Fetches of it are not recorded."""

    @property
    def caught_up_ms(self) -> int:
        """When it was known to have everything."""
        session = self.idle_session
        return self.last_caught_up_ms if session is None else max(self.last_caught_up_ms, session.used_ms)

    def become_idle(self, session: IdleSession) -> None:
        """Take each Fetch of the session for one that finds the follower caught up."""
        self.idle_session = session

    def become_active(self) -> None:
        """Record the follower's Fetches again; until now it was caught up."""
        if self.idle_session is not None:
            self.last_caught_up_ms = self.last_fetch_ms = self.caught_up_ms
            self.idle_session = None


class PartitionLeader:
    """The leader's view of one partition in one leader epoch.

    With a single replica the high watermark is the log's end: the shell sees `is_sole_replica` and moves it without a call here,
    which the profile of unbatched produce asks for."""

    __slots__ = (
        "broker_id",
        "followers",
        "high_watermark",
        "is_sole_replica",
        "isr",
        "joining",
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
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: frozenset[int],
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        min_isr: int = 1,
        held_to: int | None = None,
    ) -> None:
        """`held_to`: so much of its own log the leader has for certain; all of it without."""
        assert broker_id in replicas, "a leader is one of the replicas"
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = log_end_offset
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.proposed_isr: frozenset[int] | None = None
        self.log_end_offset = log_end_offset if held_to is None else held_to
        self.high_watermark = min(high_watermark, log_end_offset)
        self.followers = {
            replica: FollowerProgress(last_caught_up_ms=now_ms if replica in isr else NEVER_MS)
            for replica in replicas
            if replica != broker_id
        }
        self.joining: frozenset[int] = frozenset()
        """Out of sync, but caught up a moment ago: the high watermark waits for them, or else they could never join
        under load (Kafka's shouldWaitForReplicaToJoinIsr)."""
        self.is_sole_replica = replicas == (broker_id,)
        self.min_isr = min_isr
        self._advance_high_watermark()

    def appended(self, log_end_offset: int) -> list[Effect]:
        """The leader's own log has grown, or more of it is held for certain."""
        assert log_end_offset >= self.log_end_offset
        self.log_end_offset = log_end_offset
        return self._advance_high_watermark()

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
        """A fetch at an offset proves that the follower holds everything before it.

        `may_join`: the controller would take this broker, in this epoch, into the ISR."""
        progress = self.followers.get(follower)
        if progress is None:
            return []
        progress.become_active()
        progress.broker_epoch = broker_epoch
        caught_up = True
        if fetch_offset >= self.log_end_offset:
            progress.last_caught_up_ms = now_ms
        elif fetch_offset >= progress.leader_end_at_last_fetch >= 0:
            # It has everything that was there at its last fetch: caught up then, whatever was written since.
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        else:
            caught_up = False
        progress.last_fetch_ms = now_ms
        progress.leader_end_at_last_fetch = self.log_end_offset
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = follower_log_start
        if follower not in self.isr:
            self.joining = self.joining | {follower} if caught_up and may_join else self.joining - {follower}
        effects = self._advance_high_watermark()
        if (
            follower not in self.isr
            and may_join
            and self.proposed_isr is None
            and fetch_offset >= self.high_watermark
            and fetch_offset >= self.leader_epoch_start_offset
        ):
            effects.append(self._propose(self.isr | {follower}))
        return effects

    def check_lag(self, now_ms: int, lag_time_max_ms: int) -> list[Effect]:
        """Propose to drop every follower that was last caught up longer ago than `replica.lag.time.max.ms`."""
        slow = {
            replica
            for replica, progress in self.followers.items()
            if progress.log_end_offset != self.log_end_offset and now_ms - progress.caught_up_ms > lag_time_max_ms
        }
        effects: list[Effect] = []
        if self.joining & slow:
            self.joining -= slow
            effects = self._advance_high_watermark()
        if self.proposed_isr is None and self.isr & slow:
            effects.append(self._propose(self.isr - slow))
        return effects

    def isr_decided(self, isr: frozenset[int], partition_epoch: int) -> list[Effect]:
        """The controller's word on the ISR, whether we had proposed it or not."""
        if partition_epoch < self.partition_epoch:
            return []
        self.isr = isr
        self.joining = frozenset()
        self.partition_epoch = partition_epoch
        self.proposed_isr = None
        return self._advance_high_watermark()

    def replicas_changed(self, replicas: tuple[int, ...]) -> list[Effect]:
        """A reassignment adds replicas, or takes away such as are out of sync, within this epoch."""
        self.replicas = replicas
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress()
            for replica in replicas
            if replica != self.broker_id
        }
        self.joining &= frozenset(replicas)
        self.is_sole_replica = replicas == (self.broker_id,)
        return self._advance_high_watermark()

    def cannot_join(self, follower: int) -> list[Effect]:
        """The follower's broker is fenced or going: nobody waits for it to come into the ISR."""
        if follower not in self.joining:
            return []
        self.joining -= {follower}
        return self._advance_high_watermark()

    def isr_refused(self) -> list[Effect]:
        """The controller certainly did not take the proposal; a later fetch may propose again."""
        self.proposed_isr = None
        return self._advance_high_watermark()

    def broker_epoch_of(self, replica: int, own: int) -> int:
        """In which epoch this replica fetched last; `own` is this broker's; -1 when it never did."""
        progress = self.followers.get(replica)
        return own if progress is None else progress.broker_epoch

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start offset of all live replicas: what DeleteRecords waits for and reports."""
        starts = [progress.log_start_offset for replica, progress in self.followers.items() if is_alive(replica)]
        return min([log_start_offset, *starts])

    def _propose(self, isr: frozenset[int]) -> ProposeIsr:
        self.proposed_isr = isr
        return ProposeIsr(isr)

    def set_min_isr(self, min_isr: int) -> list[Effect]:
        """Another `min.insync.replicas`."""
        self.min_isr = min_isr
        return self._advance_high_watermark()

    @property
    def under_min_isr(self) -> bool:
        """With so few replicas in sync nothing more is committed (KIP-966); no more are asked for than there are."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    def _advance_high_watermark(self) -> list[Effect]:
        if self.under_min_isr:
            return []
        held = self.isr | self.joining if self.proposed_isr is None else self.isr | self.joining | self.proposed_isr
        ends = [progress.log_end_offset for replica, progress in self.followers.items() if replica in held]
        reached = min([self.log_end_offset, *ends])
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [HighWatermarkAdvanced(reached)]
