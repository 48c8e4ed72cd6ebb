"""The log of a coordinator's partition: records are appended to it, and take effect when they are committed.

Owns loading, appending, waiting for the high watermark, and replaying in order. Leaves the meaning of records to the
state machine, and steps, responses and deadlines to `coordinator_partition`.
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
from odradek_log.append import Rejection
from odradek_log.log_errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError
from odradek_log.producer_state_manager import AppendOrigin
from odradek_log.verification_guard import VerificationGuard
from odradek_wire.errors import DecodeError, ErrorCode
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.record_errors import CorruptRecordError

LOAD_WHOLE_BYTES = 32 * 1024
"""A log of up to this size is loaded before `load` returns; a longer one in slices."""
LOAD_SLICE_BYTES = 64 * 1024
LOAD_SLICE_RECORDS = 500
"""The sizes of a slice that is read and of one that is replayed; other callbacks run between two slices."""

R = TypeVar("R")
WriteCallback = Callable[[ErrorCode], None]


class CoordinatorState(Enum):
    """The state of a coordinator in one partition, as in Kafka's CoordinatorRuntime; UNCOMMITTED is ours."""

    LOADING = "loading"
    UNCOMMITTED = "uncommitted"
    """Loaded, but the last records are not committed, and cannot be soon: the ISR is below min.insync.replicas."""
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"
    """Another broker is the coordinator."""


class CoordinatorLoader(Protocol):
    """Builds a coordinator's state from its log."""

    def read_batches(self, data: memoryview) -> int:
        """Read these batches and return the offset after the last whole one; ignore a last batch that is cut off."""

    def replay_next(self, count: int) -> bool:
        """Replay the next `count` records; return False when none is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorPlayback(Generic[R]):
    """The encoding of a coordinator's records, and their effect on its state (Kafka's CoordinatorPlayback)."""

    encode: Callable[[R], tuple[bytes, bytes | None]]
    replay: Callable[[R], None]
    loader: Callable[[], CoordinatorLoader]
    needs_committed_records: bool = False
    """Whether the coordinator must wait until the loaded records are committed, even when the ISR is below
    min.insync.replicas. True for transactions: a marker cannot be taken back if the record that caused it is lost."""


@dataclass(slots=True)
class PendingWrite:
    """A batch that is in the log and not yet below the high watermark."""

    end_offset: int
    take_effect: Callable[[], None]
    done: WriteCallback
    done_late: WriteCallback | None
    """Called when the batch is committed after `done` was called with REQUEST_TIMED_OUT."""
    failed: bool = False
    """`done` was called with an error."""

    def complete(self, error: ErrorCode) -> None:
        callback = self.done_late if self.failed else self.done
        if callback is not None:
            callback(error)


class DurablePartition(Generic[R]):
    """Appends records immediately, and applies them to the state, in the order of the log, when they are committed.
    With one replica that is before `write` returns."""

    def __init__(
        self,
        *,
        partition: Partition,
        playback: CoordinatorPlayback[R],
        loaded: Callable[[], None],
        clock: Clock,
        timers: Timers,
        log: Logger,
        compression: Compression,
        write_timeout_ms: int,
    ) -> None:
        """`loaded` is called when the state becomes ACTIVE. A write that is not committed within `write_timeout_ms`
        fails with REQUEST_TIMED_OUT."""
        self.partition = partition
        self.state = CoordinatorState.LOADING
        self._playback = playback
        self._loaded = loaded
        self._compression = compression
        self._write_timeout_ms = write_timeout_ms
        self._log = log
        self._clock = clock
        self._timers = timers
        self._pending: deque[PendingWrite] = deque()
        self._awaiting_committed_writes: deque[WriteCallback] = deque()
        self._calling_back = False

    def now(self) -> Instant:
        return Instant(self._clock.wall_ms(), self._clock.monotonic_ms())

    # -- loading --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the log up to its present end: immediately if it is short, else in slices."""
        start, end = self.partition.log_start_offset, self.partition.log_end_offset
        slices = self._slices(self._playback.loader(), start, end)
        if self.partition.log.size_bytes <= LOAD_WHOLE_BYTES:
            while self._load_next_slice(slices):
                pass
        else:
            self._timers.call_soon(lambda: self._load_in_slices(slices))

    def _load_in_slices(self, slices: Iterator[None]) -> None:
        if self._load_next_slice(slices):
            self._timers.call_soon(lambda: self._load_in_slices(slices))

    def _load_next_slice(self, slices: Iterator[None]) -> bool:
        """Load the next slice; return False when none is left or loading has ended."""
        if self.state is not CoordinatorState.LOADING:
            return False
        try:
            next(slices)
        except StopIteration:
            self._activate_once_committed()
            return False
        except (
            OSError,
            CorruptRecordError,
            CorruptLogError,
            LogOfflineError,
            OffsetOutOfRangeError,
            DecodeError,
        ) as error:
            self.state = CoordinatorState.FAILED
            self._log.error("coordinator state cannot be loaded", error=str(error))
        return self.state is CoordinatorState.LOADING

    def _activate_once_committed(self) -> None:
        """Become active when all loaded records are committed.

        The previous coordinator may have acknowledged records above the high watermark, but they may also be lost. A
        committed offset must not go back after a client has read it, so the coordinator refuses requests until these
        records are committed (as KIP-207 does for the end offset of a log; Kafka's coordinators do not wait). While the
        ISR is below min.insync.replicas, the high watermark does not move: then the coordinator becomes active
        immediately, unless it `needs_committed_records`."""
        partition = self.partition
        if self.state not in (CoordinatorState.LOADING, CoordinatorState.UNCOMMITTED):
            return
        leader = partition.leader
        under_min_isr = leader is not None and leader.under_min_isr
        if not partition.is_behind_epoch_start or (under_min_isr and not self._playback.needs_committed_records):
            self.state = CoordinatorState.ACTIVE
            self._loaded()
            return
        if under_min_isr:
            self.state = CoordinatorState.UNCOMMITTED
        assert leader is not None, "only a leader can be behind the start of its epoch"
        waiting = partition.wait_for_high_watermark(leader.leader_epoch_start_offset, self._write_timeout_ms)
        waiting.when_done(lambda outcome: self._activation_wait_ended(outcome.result()))

    def _activation_wait_ended(self, error: ErrorCode) -> None:
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self._activate_once_committed()
        elif self.state in (CoordinatorState.LOADING, CoordinatorState.UNCOMMITTED):
            self.state = CoordinatorState.FAILED

    def _slices(self, loader: CoordinatorLoader, offset: int, end: int) -> Iterator[None]:
        while offset < end:
            # Segments at the beginning of the log may have been deleted since the last slice.
            offset = max(offset, self.partition.log_start_offset)
            batches = self.partition.log.read(offset, LOAD_SLICE_BYTES, limit=end, min_one=True)
            if batches is None or not len(batches):
                break
            offset = max(loader.read_batches(memoryview(batches.tobytes())), offset + 1)
            yield
        while loader.replay_next(LOAD_SLICE_RECORDS):
            yield

    def resign(self) -> None:
        """Fail pending writes with NOT_COORDINATOR: another broker is the coordinator now."""
        self.state = CoordinatorState.CLOSED
        pending, self._pending = self._pending, deque()
        for write in pending:
            write.complete(ErrorCode.NOT_COORDINATOR)
        self._fail_awaiting_committed_writes(ErrorCode.NOT_COORDINATOR)

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[R], done: WriteCallback, done_late: WriteCallback | None = None) -> None:
        """Append records as one batch; call `done` when they have taken effect, or with the error. After
        REQUEST_TIMED_OUT the records are in the log and may still be committed: when they are, call `done_late`."""
        self._write(self._batch(records), records, done, done_late)

    def write_in_transaction(
        self,
        records: Sequence[R],
        producer_id: int,
        producer_epoch: int,
        guard: VerificationGuard | None,
        done: WriteCallback,
    ) -> None:
        """Append records as one batch of the producer's transaction. `guard` is the one for `Partition.append`."""
        batch = self._batch(records, self._transactional_builder(producer_id, producer_epoch))
        self._write(batch, records, done, None, guard)

    def when_committed(self, take_effect: Callable[[], None]) -> None:
        """Call `take_effect` when the batch at the end of the log is committed, in order with the writes. Another part
        of the broker has just appended it."""
        self._await_commit(take_effect, _ignore)

    def _write(
        self,
        batch: bytearray,
        records: Sequence[R],
        done: WriteCallback,
        done_late: WriteCallback | None,
        guard: VerificationGuard | None = None,
    ) -> None:
        leader = self.partition.leader
        if leader is not None and leader.under_min_isr:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        result = self.partition.append(batch, origin=AppendOrigin.COORDINATOR, guard=guard)
        if isinstance(result, Rejection):
            done(result.error)
        else:
            self._await_commit(lambda: self._replay(records), done, done_late)

    def _await_commit(
        self, take_effect: Callable[[], None], done: WriteCallback, done_late: WriteCallback | None = None
    ) -> None:
        end_offset = self.partition.log_end_offset
        self._pending.append(PendingWrite(end_offset, take_effect, done, done_late))
        if self.partition.high_watermark >= end_offset:
            self._complete_committed_writes()
        else:
            self._await_high_watermark(end_offset)

    def _replay(self, records: Sequence[R]) -> None:
        for record in records:
            self._playback.replay(record)

    @property
    def has_pending_writes(self) -> bool:
        """Whether the log has a record that has not taken effect."""
        return bool(self._pending)

    def when_earlier_writes_committed(self, callback: WriteCallback) -> None:
        """Call back when the writes that are pending now are committed, whatever is written after them; with an error
        as `when_writes_committed`. For requests that only read: one that writes must know of later writes, too."""
        if self._pending:
            self._await_commit(_change_nothing, callback)
        else:
            callback(ErrorCode.NONE)

    def when_writes_committed(self, callback: WriteCallback) -> None:
        """Call back when no write is pending: with one replica immediately. If a callback writes, those after it wait
        for that write, too.

        Call back with REQUEST_TIMED_OUT when a pending write has timed out, and with NOT_COORDINATOR if another broker
        becomes the coordinator first."""
        self._awaiting_committed_writes.append(callback)
        self._call_awaiting_committed_writes()

    def _batch(self, records: Sequence[R], builder: BatchBuilder | None = None) -> bytearray:
        builder = builder or BatchBuilder(compression=self._compression)
        now_ms = self._clock.wall_ms()
        for record in records:
            key, value = self._playback.encode(record)
            builder.append(now_ms, key, value)
        return builder.build()

    def _transactional_builder(self, producer_id: int, producer_epoch: int) -> BatchBuilder:
        # The sequence of a coordinator's batch is not checked; Kafka's begins with 0 each time.
        return BatchBuilder(
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def _await_high_watermark(self, end_offset: int) -> None:
        waiting = self.partition.wait_for_high_watermark(end_offset, self._write_timeout_ms)
        waiting.when_done(lambda outcome: self._high_watermark_wait_ended(end_offset, outcome))

    def _high_watermark_wait_ended(self, end_offset: int, outcome: Deferred[ErrorCode]) -> None:
        error = outcome.result()
        if not error:
            self._complete_committed_writes()
            return
        timed_out = error == ErrorCode.REQUEST_TIMED_OUT and self.state is CoordinatorState.ACTIVE
        waiting = [write for write in self._pending if write.end_offset <= end_offset and not write.failed]
        for write in waiting:
            write.failed = True
            if not timed_out:
                write.done_late = None
        for write in waiting:  # `done` may append more records, so `_pending` must not be iterated here
            write.done(error)
        self._fail_awaiting_committed_writes(error)
        if timed_out:
            # The records may still be committed.
            self._await_high_watermark(end_offset)

    def _complete_committed_writes(self) -> None:
        while self._pending and self._pending[0].end_offset <= self.partition.high_watermark:
            write = self._pending.popleft()
            write.take_effect()
            write.complete(ErrorCode.NONE)
        self._call_awaiting_committed_writes()

    def _call_awaiting_committed_writes(self) -> None:
        if self._calling_back:
            # A callback has written, and its write is committed already. The loop below continues, so that the stack
            # does not grow.
            return
        self._calling_back = True
        try:
            while self._awaiting_committed_writes and not self._pending:
                self._awaiting_committed_writes.popleft()(ErrorCode.NONE)
        finally:
            self._calling_back = False

    def _fail_awaiting_committed_writes(self, error: ErrorCode) -> None:
        waiting, self._awaiting_committed_writes = self._awaiting_committed_writes, deque()
        for callback in waiting:
            callback(error)


def _change_nothing() -> None:
    """A request waits for the writes before it, and writes nothing."""


def _ignore(_: ErrorCode) -> None:
    """No request waits for this write."""
