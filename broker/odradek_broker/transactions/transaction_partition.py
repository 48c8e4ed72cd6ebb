"""One partition of `__transaction_state` that this broker leads: the core of its transactions joined to its log.

Owns carrying out what the core decides, answering, and who waits for an id that is busy. Leaves every rule to
`core.transaction_shard`, loading and writing to `durable_partition`, waiting for the next deadline to `deadline_timer`,
getting markers written to `markers`, and which transactional ids come here to `transactions`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from odradek_broker.clock import Clock
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.deadline_timer import DeadlineTimer
from odradek_broker.coordination.durable_partition import Core, DurablePartition, LoadState
from odradek_broker.deferred import Deferred
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction import Ending, TopicPartition
from odradek_broker.transactions.core.transaction_loading import TransactionLoading
from odradek_broker.transactions.core.transaction_progress import NextId
from odradek_broker.transactions.core.transaction_records import encode_record
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_step import Happening, MarkerWork, Step, TransactionSettings
from odradek_broker.transactions.markers import Markers
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression


class Waiting(NamedTuple):
    go_on: Callable[[], None]
    limit: TimerHandle


class TransactionPartition:
    """With one replica, and partitions that are led here, everything that a request leads to is done when `carry_out`
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
        core = Core(encode_record, self.shard.replay, lambda: TransactionLoading(self.shard), self._loaded, acts=True)
        self._durable = DurablePartition(partition, core, clock, timers, self._log, Compression.NONE, write_timeout_ms)
        self._markers = markers
        self._timers = timers
        self._deadline_timer = DeadlineTimer(clock, timers, self.shard.next_ms, self._expire)
        self._waiting: dict[str, deque[Waiting]] = {}
        """Who comes while something of its id is under way."""
        self._written_ids: deque[str] = deque()
        """Those of which something has come to its end: who waits for them may go on."""
        self._waking = False
        self._next_producer_id = next_producer_id
        self._ended = ended

    @property
    def state(self) -> LoadState:
        return self._durable.state

    @property
    def leads(self) -> bool:
        """Whether these transactions are coordinated here."""
        return self._durable.state is LoadState.READY

    def now(self) -> Instant:
        return self._durable.now()

    def load(self) -> None:
        """Replay the log up to its present end: a short one at once, a long one in turns."""
        self._durable.load()

    def _loaded(self) -> None:
        self.carry_out(self.shard.loaded(self._durable.partition.leader_epoch, self.now()))

    def resign(self) -> None:
        """Another broker coordinates these transactions now."""
        self._deadline_timer.cancel()
        self._durable.resign()
        for token, answer in self.shard.unload(self.now()).answers:
            _deferred(token).complete(answer)
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

    def carry_out(self, step: Step) -> None:
        """Give the answers of a step, have its markers written, write its records, and tell the core the outcome."""
        for happening in step.happened:
            self._note(happening)
        if step.ended is not None:
            self._ended[step.ended] += 1
        for token, answer in step.answers:
            _deferred(token).complete(answer)
        for work in step.markers:
            self._markers.send(self, work)
        if step.records:

            def written(error: ErrorCode) -> None:
                self._written(step, error)

            self._durable.write(step.records, written, late=written)
        self._arm()

    def _written(self, step: Step, error: ErrorCode) -> None:
        ids = [record.transactional_id for record in step.records]
        if error:
            self._log.warning("transactions were not written", transactional_ids=ids, error=error.name)
        if self.leads:
            assert step.write is not None, "records are written for a reason"
            self.carry_out(self.shard.written(step.write, error, self.now()))
            if self._waiting:
                self._wake(ids)

    def markers_written(self, work: MarkerWork, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or need none."""
        self.carry_out(self.shard.markers_written(work, frozenset(partitions), self.now()))

    def _note(self, happening: Happening) -> None:
        producer_id, producer_epoch = happening.producer
        (self._log.info if happening.notable else self._log.debug)(
            happening.event,
            transactional_id=happening.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    # -- time -----------------------------------------------------------------------------------------------------

    def expire_ids(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        for step in self.shard.expire_ids(self.now()):
            self.carry_out(step)

    def _arm(self) -> None:
        if self.leads:
            self._deadline_timer.arm()

    def _expire(self) -> None:
        for step in self.shard.expired(self.now(), self._next_producer_id):
            self.carry_out(step)
        self._arm()


def _deferred(token: object) -> Deferred[Any]:
    assert isinstance(token, Deferred)
    return token
