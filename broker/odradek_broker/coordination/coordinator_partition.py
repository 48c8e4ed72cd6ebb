"""One partition of a coordinator's internal topic that this broker leads: a state machine and its log.

Owns applying the steps of the state machine: events, responses, appends and the deadline timer. Leaves loading and
appending to `durable_partition`, and the parts of a step that only one coordinator has to `group_partition` and
`transaction_partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from odradek_broker.clock import Clock
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import CoordinatorEvent, DeferredResponse, Step
from odradek_broker.coordination.deadline_timer import DeadlineTimer
from odradek_broker.coordination.durable_partition import CoordinatorPlayback, CoordinatorState, DurablePartition
from odradek_broker.deferred import Deferred
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression

AnyStep = TypeVar("AnyStep", bound=Step[Any, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorShard(Generic[AnyStep]):
    """The callbacks of a coordinator's state machine, apart from requests (Kafka's CoordinatorShard)."""

    loaded: Callable[[Instant], AnyStep]
    """Make the first step, when the log is replayed and the coordinator begins to serve requests."""
    written: Callable[[AnyStep, ErrorCode], None]
    """Handle the outcome of a step's write: NONE when its records are committed, or the error."""
    next_deadline_ms: Callable[[], int | None]
    handle_deadlines: Callable[[Instant], Iterable[AnyStep]]
    """Yield one step for each deadline that has passed. The caller applies a step before it takes the next one."""
    unloaded: Callable[[Instant], AnyStep]
    """Make the last step, with an error for every pending request: another broker is the coordinator now."""


class CoordinatorPartition(Generic[AnyStep]):
    """The state machine of one partition, joined to its log. With one replica, the records of a step have taken effect
    when `apply` returns."""

    def __init__(
        self,
        *,
        partition: Partition,
        playback: CoordinatorPlayback[Any],
        shard: CoordinatorShard[AnyStep],
        clock: Clock,
        timers: Timers,
        log: Logger,
        compression: Compression,
        write_timeout_ms: int,
        effects: Callable[[AnyStep], None] = lambda step: None,
        reports_late_writes: bool = False,
    ) -> None:
        """`effects` applies the parts of a step that only this coordinator has; it is called after the responses are
        sent. With `reports_late_writes`, the shard's `written` is called a second time for a write that is committed
        after it failed with REQUEST_TIMED_OUT."""
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        self._shard = shard
        self._effects = effects
        self._reports_late_writes = reports_late_writes
        self.durable = DurablePartition(
            partition=partition,
            playback=playback,
            loaded=self._loaded,
            clock=clock,
            timers=timers,
            log=self._log,
            compression=compression,
            write_timeout_ms=write_timeout_ms,
        )
        self._deadline_timer = DeadlineTimer(clock, timers, shard.next_deadline_ms, self._handle_deadlines)

    @property
    def state(self) -> CoordinatorState:
        return self.durable.state

    @property
    def is_active(self) -> bool:
        return self.durable.state is CoordinatorState.ACTIVE

    def now(self) -> Instant:
        return self.durable.now()

    def load(self) -> None:
        """Replay the log up to its present end: immediately if it is short, else in slices."""
        self.durable.load()

    def resign(self) -> None:
        """Cancel the timer, and complete pending requests: another broker is the coordinator now."""
        self._deadline_timer.cancel()
        self.durable.resign()
        self._respond(self._shard.unloaded(self.now()))

    def apply(self, step: AnyStep) -> None:
        """Log the events, send the responses, and append the records of a step."""
        for event in step.events:
            self._log_event(event)
        self._respond(step)
        self._effects(step)
        if step.records:

            def written(error: ErrorCode) -> None:
                self._shard.written(step, error)
                for pending in step.responses_once_written:
                    # The second call for a late write has no effect here: the requests are completed.
                    response = pending.error_response(error) if error else pending.response
                    _complete(pending.deferred, response)

            self.durable.write(step.records, written, done_late=written if self._reports_late_writes else None)
        else:
            assert not step.responses_once_written, "a response once written needs a record"
        self._arm()

    def _loaded(self) -> None:
        self.apply(self._shard.loaded(self.now()))

    def _respond(self, step: AnyStep) -> None:
        for deferred, response in step.responses:
            _complete(deferred, response)

    def _log_event(self, event: CoordinatorEvent) -> None:
        (self._log.info if event.notable else self._log.debug)(event.message, **event.facts)

    def _arm(self) -> None:
        if self.is_active:
            self._deadline_timer.arm()

    def _handle_deadlines(self) -> None:
        for step in self._shard.handle_deadlines(self.now()):
            self.apply(step)
        self._arm()


def _complete(deferred: DeferredResponse, response: object) -> None:
    assert isinstance(deferred, Deferred)
    deferred.complete(response)
