"""One partition of `__transaction_state` that this broker leads: the core of its transactions joined to its log.

Owns carrying out what the core decides, answering, and who waits for an id that is busy. Leaves every rule to
`core.transaction_shard`, loading and writing to `durable_partition`, waiting for the next deadline to `deadline_timer`,
getting markers written to `markers`, and which transactional ids come here to `transactions`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek_broker.clock import Clock
from odradek_broker.coordination.coordinator_partition import CoordinatorPartition, StateMachine
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.durable_partition import CoordinatorState, Playback
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction import Ending, TopicPartition
from odradek_broker.transactions.core.transaction_loading import TransactionLoading
from odradek_broker.transactions.core.transaction_progress import NextId
from odradek_broker.transactions.core.transaction_records import encode_record
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_step import MarkerWork, TransactionSettings, TransactionStep
from odradek_broker.transactions.markers import Markers
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression


class Waiting(NamedTuple):
    go_on: Callable[[], None]
    limit: TimerHandle


class TransactionPartition:
    """With one replica, and partitions that are led here, everything that a request leads to is done when `apply`
    returns: the decision is in the log, the markers are written, the transaction is complete."""

    def __init__(
        self,
        partition: Partition,
        markers: Markers,
        clock: Clock,
        timers: Timers,
        settings: TransactionSettings,
        log: Logger,
        write_timeout_ms: int,
        next_producer_id: NextId,
        ended: Counter[Ending],
    ) -> None:
        """`write_timeout_ms` is how long a request is kept waiting for its record to be replicated; `ended` counts."""
        self.shard = TransactionShard(settings)
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        self._coordinator = CoordinatorPartition(
            partition=partition,
            playback=Playback(
                encode=encode_record,
                replay=self.shard.replay,
                loader=lambda: TransactionLoading(self.shard),
                irrevocable=True,
            ),
            state_machine=StateMachine(
                loaded=lambda now: self.shard.loaded(partition.leader_epoch, now),
                written=self._written,
                next_deadline_ms=self.shard.next_ms,
                expired=lambda now: self.shard.expired(now, next_producer_id),
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
        self._waiting: dict[str, deque[Waiting]] = {}
        """Who comes while something of its id is under way."""
        self._written_ids: deque[str] = deque()
        """Those of which something has come to its end: who waits for them may go on."""
        self._waking = False
        self._ended = ended

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
        """Another broker coordinates these transactions now."""
        self._coordinator.resign()
        for transactional_id in list(self._waiting):
            self._go_on(transactional_id, len(self._waiting[transactional_id]))

    # -- who waits ------------------------------------------------------------------------------------------------

    def when_idle(self, transactional_id: str, patience_ms: int, go_on: Callable[[], None]) -> None:
        """Call `go_on` when nothing of the id is under way any more, at once if that is so; or when `patience_ms` are
        over, or others coordinate it."""
        if not patience_ms or not self.shard.is_busy(transactional_id):
            go_on()
            return
        limit = self._timers.call_later(patience_ms, lambda: self._go_on(transactional_id, 1))
        self._waiting.setdefault(transactional_id, deque()).append(Waiting(go_on, limit))

    def _go_on(self, transactional_id: str, count: int) -> None:
        """The first ones that wait do so no more."""
        for _ in range(count):
            waiting = self._waiting[transactional_id]
            go_on, limit = waiting.popleft()
            if not waiting:
                del self._waiting[transactional_id]
            limit.cancel()
            go_on()

    def _wake(self, transactional_ids: Iterable[str]) -> None:
        """Who goes on may write, and be done with it at once: that is found by the loop that is under way already, so
        that the stack does not grow with those that wait."""
        self._written_ids.extend(id_ for id_ in transactional_ids if id_ in self._waiting)
        if self._waking:
            return
        self._waking = True
        try:
            while self._written_ids:
                transactional_id = self._written_ids.popleft()
                while transactional_id in self._waiting and not self.shard.is_busy(transactional_id):
                    self._go_on(transactional_id, 1)
        finally:
            self._waking = False

    # -- steps ----------------------------------------------------------------------------------------------------

    def apply(self, step: TransactionStep) -> None:
        """Log the events, send the responses and the markers, and append the records of a step."""
        self._coordinator.apply(step)

    def _effects(self, step: TransactionStep) -> None:
        if step.ended is not None:
            self._ended[step.ended] += 1
        for work in step.markers:
            self._markers.send(self, work)

    def _written(self, step: TransactionStep, error: ErrorCode) -> None:
        ids = [record.transactional_id for record in step.records]
        if error:
            self._log.warning("transactions were not written", transactional_ids=ids, error=error.name)
        if self.is_active:
            assert step.write is not None, "records are written for a reason"
            self.apply(self.shard.written(step.write, error, self.now()))
            if self._waiting:
                self._wake(ids)

    def markers_written(self, work: MarkerWork, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or need none."""
        self.apply(self.shard.markers_written(work, frozenset(partitions), self.now()))

    # -- time -----------------------------------------------------------------------------------------------------

    def expire_ids(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        for step in self.shard.expire_ids(self.now()):
            self.apply(step)
