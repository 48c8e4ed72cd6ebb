"""One partition of `__transaction_state` that this broker leads: the transaction shard joined to its log.

Owns applying the steps of the shard, and requests that wait while their transactional id is busy. Leaves the rules to
`core.transaction_shard`, responses, appends and deadlines to `coordination.coordinator_partition`, sending markers to
`transaction_marker_channel_manager`, and the choice of the partition to `transaction_coordinator`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek_broker.clock import Clock
from odradek_broker.coordination.coordinator_partition import CoordinatorPartition, CoordinatorShard
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.durable_partition import CoordinatorPlayback, CoordinatorState
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction_loader import TransactionLoader
from odradek_broker.transactions.core.transaction_metadata import TopicPartition, TransactionOutcome
from odradek_broker.transactions.core.transaction_records import encode_record
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_state_manager import GenerateProducerId
from odradek_broker.transactions.core.transaction_step import TransactionMarkers, TransactionSettings, TransactionStep
from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression


class WaitingRequest(NamedTuple):
    resume: Callable[[], None]
    timer: TimerHandle


class TransactionPartition:
    """One partition's shard, log and waiting requests.

    In a cluster of one broker, `apply` completes the transaction before it returns: it writes the decision, the
    markers, and the completion."""

    def __init__(
        self,
        *,
        partition: Partition,
        markers: TransactionMarkerChannelManager,
        clock: Clock,
        timers: Timers,
        settings: TransactionSettings,
        log: Logger,
        write_timeout_ms: int,
        generate_producer_id: GenerateProducerId,
        outcome_counts: Counter[TransactionOutcome],
    ) -> None:
        """`write_timeout_ms` limits the wait of a request until its record is replicated. The partition counts decided
        transactions in `outcome_counts`."""
        self.shard = TransactionShard(settings)
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        self._coordinator = CoordinatorPartition(
            partition=partition,
            playback=CoordinatorPlayback(
                encode=encode_record,
                replay=self.shard.replay,
                loader=lambda: TransactionLoader(self.shard),
                needs_committed_records=True,
            ),
            shard=CoordinatorShard(
                loaded=lambda now: self.shard.loaded(partition.leader_epoch, now),
                written=self._written,
                next_deadline_ms=self.shard.next_ms,
                handle_deadlines=lambda now: self.shard.handle_deadlines(now, generate_producer_id),
                unloaded=self.shard.unload,
            ),
            clock=clock,
            timers=timers,
            log=log,
            compression=Compression.NONE,
            write_timeout_ms=write_timeout_ms,
            effects=self._effects,
            reports_late_writes=True,
        )
        self._markers = markers
        self._timers = timers
        self._waiting: dict[str, deque[WaitingRequest]] = {}
        """Requests that wait until their transactional id is not busy."""
        self._written_ids: deque[str] = deque()
        """Transactional ids whose write has completed, so that their waiting requests may resume."""
        self._resuming = False
        self._outcome_counts = outcome_counts

    @property
    def state(self) -> CoordinatorState:
        return self._coordinator.state

    @property
    def is_active(self) -> bool:
        return self._coordinator.is_active

    def now(self) -> Instant:
        return self._coordinator.now()

    def load(self) -> None:
        """Replay the log up to its present end: immediately if it is short, else in slices."""
        self._coordinator.load()

    def resign(self) -> None:
        """Stop coordinating these transactions, because this broker no longer leads the partition, and resume the
        waiting requests."""
        self._coordinator.resign()
        for transactional_id in list(self._waiting):
            self._resume(transactional_id, len(self._waiting[transactional_id]))

    # -- requests that wait ---------------------------------------------------------------------------------------

    def when_idle(self, transactional_id: str, wait_ms: int, resume: Callable[[], None]) -> None:
        """Call `resume` when the transactional id is not busy, at the latest after `wait_ms` or when this broker
        resigns."""
        if not wait_ms or not self.shard.is_busy(transactional_id):
            resume()
            return
        timer = self._timers.call_later(wait_ms, lambda: self._resume(transactional_id, 1))
        self._waiting.setdefault(transactional_id, deque()).append(WaitingRequest(resume, timer))

    def _resume(self, transactional_id: str, count: int) -> None:
        """Resume the first requests that wait for this transactional id."""
        for _ in range(count):
            waiting = self._waiting[transactional_id]
            resume, timer = waiting.popleft()
            if not waiting:
                del self._waiting[transactional_id]
            timer.cancel()
            resume()

    def _resume_idle(self, transactional_ids: Iterable[str]) -> None:
        """Resume requests that wait for these transactional ids, while the ids are not busy.

        A resumed request may write, and its write may complete before it returns, which calls this method again. Then
        the loop of the first call resumes the next request, so that the stack does not grow."""
        self._written_ids.extend(id_ for id_ in transactional_ids if id_ in self._waiting)
        if self._resuming:
            return
        self._resuming = True
        try:
            while self._written_ids:
                transactional_id = self._written_ids.popleft()
                while transactional_id in self._waiting and not self.shard.is_busy(transactional_id):
                    self._resume(transactional_id, 1)
        finally:
            self._resuming = False

    # -- steps ----------------------------------------------------------------------------------------------------

    def apply(self, step: TransactionStep) -> None:
        """Log the events, send the responses and the markers, and append the records of a step."""
        self._coordinator.apply(step)

    def _effects(self, step: TransactionStep) -> None:
        if step.outcome is not None:
            self._outcome_counts[step.outcome] += 1
        for markers in step.markers:
            self._markers.add(self, markers)

    def _written(self, step: TransactionStep, error: ErrorCode) -> None:
        ids = [record.transactional_id for record in step.records]
        if error:
            self._log.warning("transaction records not written", transactional_ids=ids, error=error.name)
        if self.is_active:
            assert step.write is not None, "a step with records has a write"
            self.apply(self.shard.written(step.write, error, self.now()))
            if self._waiting:
                self._resume_idle(ids)

    def markers_written(self, markers: TransactionMarkers, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions have their marker, or need none."""
        self.apply(self.shard.markers_written(markers, frozenset(partitions), self.now()))

    # -- time -----------------------------------------------------------------------------------------------------

    def expire_ids(self) -> None:
        """Remove transactional ids that have expired."""
        for step in self.shard.expire_ids(self.now()):
            self.apply(step)
