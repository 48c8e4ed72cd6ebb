"""One partition that keeps the state of a coordinator's core: what the core decides is appended, and takes effect when
all replicas in sync have it.

Owns loading, appending, waiting for the high watermark, and replaying in order. Leaves what records mean to the core,
and steps, answers and deadlines to whoever coordinates (`group_partition`, `transaction_partition`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from odradek_broker.clock import Clock
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.deferred import Deferred
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_broker.transactions.core.transaction import Producer
from odradek_log.append import AppendRejected
from odradek_log.errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError
from odradek_log.producer_state import AppendOrigin
from odradek_log.verification import Verification
from odradek_wire.errors import DecodeError, ErrorCode
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.errors import CorruptRecordError

LOAD_AT_ONCE_BYTES = 32 * 1024
"""A log up to this size is loaded before `load` returns."""
LOAD_CHUNK_BYTES = 64 * 1024
LOAD_CHUNK_RECORDS = 500
"""How much of a longer one is read, and replayed, before others get their turn."""

R = TypeVar("R")
Done = Callable[[ErrorCode], None]


class LoadState(Enum):
    LOADING = "loading"
    UNSURE = "unsure"
    """Loaded, but some of it may yet be lost, and too few are in sync for that to change soon."""
    READY = "ready"
    FAILED = "failed"
    RESIGNED = "resigned"


NOT_YET = (LoadState.LOADING, LoadState.UNSURE)
"""For who asks: an answer would be too early."""


class Loading(Protocol):
    """Builds a core's state from its log."""

    def feed(self, data: memoryview) -> int:
        """Take in these batches (the last may be cut off, and is left); returns the offset to go on from."""

    def apply(self, count: int) -> bool:
        """Replay the next `count` records of those that count; False when all are."""


@dataclass(frozen=True, slots=True)
class Core(Generic[R]):
    """A coordinator's core as its partition sees it: records to bytes, their effect, and what follows once all that
    was there has been replayed."""

    encode: Callable[[R], tuple[bytes, bytes | None]]
    replay: Callable[[R], None]
    loading: Callable[[], Loading]
    loaded: Callable[[], None]
    acts: bool = False
    """Others are told what follows from its state, and cannot be told otherwise should a record get lost."""


@dataclass(slots=True)
class PendingWrite:
    """What stands in the log, and is not yet below the high watermark."""

    end_offset: int
    take_effect: Callable[[], None]
    done: Done
    late: Done | None
    told: bool = False
    """`done` was told that this takes too long."""

    def settle(self, error: ErrorCode) -> None:
        """It is known what has become of them."""
        waiting = self.late if self.told else self.done
        if waiting is not None:
            waiting(error)


class DurablePartition(Generic[R]):
    """Appends happen at once and in order; records take effect, in the same order, when the high watermark passes them.
    With one replica that is before `write` returns."""

    def __init__(
        self,
        partition: Partition,
        core: Core[R],
        clock: Clock,
        timers: Timers,
        log: Logger,
        compression: Compression,
        commit_timeout_ms: int,
    ) -> None:
        """`commit_timeout_ms` is how long who waits for a write is kept waiting."""
        self.partition = partition
        self.state = LoadState.LOADING
        self._core = core
        self._compression = compression
        self._commit_timeout_ms = commit_timeout_ms
        self._log = log
        self._clock = clock
        self._timers = timers
        self._pending: deque[PendingWrite] = deque()
        self._when_drained: list[Done] = []

    def now(self) -> Instant:
        return Instant(self._clock.wall_ms(), self._clock.monotonic_ms())

    # -- loading --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the log up to its present end: a short one at once, a long one in turns."""
        start, end = self.partition.log_start_offset, self.partition.log_end_offset
        work = self._loading(self._core.loading(), start, end)
        if self.partition.log.size_bytes <= LOAD_AT_ONCE_BYTES:
            while self._go_on_loading(work):
                pass
        else:
            self._timers.call_soon(lambda: self._load_in_turns(work))

    def _load_in_turns(self, work: Iterator[None]) -> None:
        if self._go_on_loading(work):
            self._timers.call_soon(lambda: self._load_in_turns(work))

    def _go_on_loading(self, work: Iterator[None]) -> bool:
        """The next piece of work; False when there is none left, or none to be done any more."""
        if self.state is not LoadState.LOADING:
            return False
        try:
            next(work)
        except StopIteration:
            self._await_what_was_loaded()
            return False
        except (
            OSError,
            CorruptRecordError,
            CorruptLogError,
            LogOfflineError,
            OffsetOutOfRangeError,
            DecodeError,
        ) as error:
            self.state = LoadState.FAILED
            self._log.error("a coordinator's state cannot be loaded", error=str(error))
        return self.state is LoadState.LOADING

    def _await_what_was_loaded(self) -> None:
        """What is not known to be committed may have been acknowledged by the coordinator before, or may yet be lost:
        an offset that is told must not go back, whichever it is (as KIP-207 for the end of a log). Kafka tells either
        at once. With too few in sync nothing more will be committed, and what is there is what there is: that may be
        told to who asks, but nothing irrevocable may follow from it."""
        partition = self.partition
        if self.state not in NOT_YET:
            return
        leader = partition.leader
        stuck = leader is not None and leader.under_min_isr
        if not partition.lags_behind_its_epoch or (stuck and not self._core.acts):
            self.state = LoadState.READY
            self._core.loaded()
            return
        if stuck:
            self.state = LoadState.UNSURE
        assert leader is not None, "a partition that is led lags behind its epoch"
        waiting = partition.wait_for_high_watermark(leader.leader_epoch_start_offset, self._commit_timeout_ms)
        waiting.when_done(lambda outcome: self._waited(outcome.result()))

    def _waited(self, error: ErrorCode) -> None:
        if error not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self.state = LoadState.FAILED if self.state in NOT_YET else self.state
        else:
            self._await_what_was_loaded()

    def _loading(self, loading: Loading, offset: int, end: int) -> Iterator[None]:
        while offset < end:
            # Between two turns the log's beginning may have been deleted.
            offset = max(offset, self.partition.log_start_offset)
            chunk = self.partition.log.read(offset, LOAD_CHUNK_BYTES, limit=end, min_one=True)
            if chunk is None or not len(chunk):
                break
            offset = max(loading.feed(memoryview(chunk.tobytes())), offset + 1)
            yield
        while loading.apply(LOAD_CHUNK_RECORDS):
            yield

    def resign(self) -> None:
        """Another broker coordinates what is kept here now: who waits for a write is sent there."""
        self.state = LoadState.RESIGNED
        pending, self._pending = self._pending, deque()
        for write in pending:
            write.settle(ErrorCode.NOT_COORDINATOR)
        self._drained(ErrorCode.NOT_COORDINATOR)

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[R], done: Done, late: Done | None = None) -> None:
        """Append records as one batch; `done` hears of it when they have taken effect, or why they do not. After a
        REQUEST_TIMED_OUT they are in the log all the same, and `late` hears what has become of them."""
        self._write(self._batch(records), records, done, late)

    def write_in_transaction(
        self, records: Sequence[R], producer: Producer, verified: Verification | None, done: Done
    ) -> None:
        """Append records as one batch of the producer's transaction. `verified` as for `Partition.append`."""
        self._write(self._batch(records, producer), records, done, None, verified)

    def appended(self, take_effect: Callable[[], None]) -> None:
        """Somebody else has appended to the partition what takes effect in the order of the log, too."""
        self._appended(take_effect, _ignore)

    def _write(
        self,
        batch: bytearray,
        records: Sequence[R],
        done: Done,
        late: Done | None,
        verified: Verification | None = None,
    ) -> None:
        leader = self.partition.leader
        if leader is not None and leader.under_min_isr:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        result = self.partition.append(batch, origin=AppendOrigin.COORDINATOR, verified=verified)
        if isinstance(result, AppendRejected):
            done(result.error)
        else:
            self._appended(lambda: self._replay(records), done, late)

    def _appended(self, take_effect: Callable[[], None], done: Done, late: Done | None = None) -> None:
        end_offset = self.partition.log_end_offset
        self._pending.append(PendingWrite(end_offset, take_effect, done, late))
        if self.partition.high_watermark >= end_offset:
            self._advance()
        else:
            self._await_high_watermark(end_offset)

    def _replay(self, records: Sequence[R]) -> None:
        for record in records:
            self._core.replay(record)

    def when_drained(self, callback: Done) -> None:
        """Call back once everything appended so far has taken effect: at once, with one replica. With NOT_COORDINATOR
        when another broker is to know what becomes of it: nothing is known here then."""
        if self._pending:
            self._when_drained.append(callback)
        else:
            callback(ErrorCode.NONE)

    def _batch(self, records: Sequence[R], producer: Producer | None = None) -> bytearray:
        if producer is None:
            builder = BatchBuilder(compression=self._compression)
        else:
            # Nobody looks at the sequence of what a coordinator writes; Kafka's begins with 0 each time.
            builder = BatchBuilder(
                compression=self._compression,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                is_transactional=True,
            )
        now_ms = self._clock.wall_ms()
        for record in records:
            key, value = self._core.encode(record)
            builder.append(now_ms, key, value)
        return builder.build()

    def _await_high_watermark(self, end_offset: int) -> None:
        waiting = self.partition.wait_for_high_watermark(end_offset, self._commit_timeout_ms)
        waiting.when_done(lambda outcome: self._high_watermark(end_offset, outcome))

    def _high_watermark(self, end_offset: int, outcome: Deferred[ErrorCode]) -> None:
        error = outcome.result()
        if not error:
            self._advance()
            return
        late = error == ErrorCode.REQUEST_TIMED_OUT and self.state is LoadState.READY
        told = [write for write in self._pending if write.end_offset <= end_offset and not write.told]
        for write in told:
            write.told = True
            if not late:
                write.late = None
        for write in told:  # who is told may write the next records at once
            write.done(error)
        if late:
            # They are in the log, and take effect if they get through.
            self._await_high_watermark(end_offset)

    def _advance(self) -> None:
        while self._pending and self._pending[0].end_offset <= self.partition.high_watermark:
            write = self._pending.popleft()
            write.take_effect()
            write.settle(ErrorCode.NONE)
        if not self._pending:
            self._drained(ErrorCode.NONE)

    def _drained(self, error: ErrorCode) -> None:
        waiting, self._when_drained = self._when_drained, []
        for callback in waiting:
            callback(error)


def _ignore(_: ErrorCode) -> None:
    """Nobody waits for it here."""
