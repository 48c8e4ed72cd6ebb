"""One partition of `__consumer_offsets` that this broker leads: the core of its groups joined to its log.

Owns loading, appending what the core decides, waiting for the high watermark, replaying, answering, and one timer for
the next deadline. Leaves every rule to `core.group_shard`, and which groups come here to `groups`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_broker.clock import Clock
from odradek_broker.core.group_deadlines import Instant
from odradek_broker.core.group_loading import Loading
from odradek_broker.core.group_records import CoordinatorRecord, encode_record
from odradek_broker.core.group_shard import GroupShard
from odradek_broker.core.group_step import GroupSettings, Happening, Step
from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.report import Logger
from odradek_broker.timers import TimerHandle, Timers
from odradek_log.append import AppendRejected
from odradek_log.errors import CorruptLogError, LogOfflineError
from odradek_log.producer_state import AppendOrigin
from odradek_wire.errors import DecodeError, ErrorCode
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.errors import CorruptRecordError

LOAD_AT_ONCE_BYTES = 32 * 1024
"""A log up to this size is loaded before `load` returns."""
LOAD_CHUNK_BYTES = 64 * 1024
LOAD_CHUNK_RECORDS = 500
"""How much of a longer one is read, and replayed, before others get their turn."""
BATCH_BYTES_MAX = 512 * 1024
"""Where many independent records are cut into batches."""

Done = Callable[[ErrorCode], None]


class LoadState(Enum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    RESIGNED = "resigned"


@dataclass(slots=True)
class PendingWrite:
    """Records in the log, not yet below the high watermark."""

    end_offset: int
    records: Sequence[CoordinatorRecord]
    done: Done | None


class GroupPartition:
    """Appends happen at once and in order; records take effect, in the same order, when the high watermark passes them.
    With one replica that is before `write` returns."""

    def __init__(
        self, partition: Partition, clock: Clock, timers: Timers, settings: GroupSettings, log: Logger
    ) -> None:
        self.partition = partition
        self.shard = GroupShard(settings)
        self.state = LoadState.LOADING
        self.compression = Compression.NONE
        self.commit_timeout_ms = 5_000
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        self._clock = clock
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._pending: deque[PendingWrite] = deque()
        self._when_drained: list[Done] = []

    def now(self) -> Instant:
        return Instant(self._clock.wall_ms(), self._clock.monotonic_ms())

    # -- loading --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the log up to its present end: a short one at once, a long one in turns."""
        start, end = self.partition.log_start_offset, self.partition.log_end_offset
        work = self._loading(Loading(self.shard), start, end)
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
        except (OSError, CorruptRecordError, CorruptLogError, LogOfflineError, DecodeError) as error:
            self.state = LoadState.FAILED
            self._log.error("groups cannot be loaded", error=str(error))
        return self.state is LoadState.LOADING

    def _await_what_was_loaded(self) -> None:
        """What is not known to be committed may have been acknowledged by the coordinator before, or may yet be lost:
        an offset that is told must not go back, whichever it is (as KIP-207 for the end of a log). Kafka tells either
        at once. With too few in sync nothing more will be committed, and what is there is what there is."""
        partition = self.partition
        if self.state is not LoadState.LOADING:
            return
        if not partition.lags_behind_its_epoch or (partition.leader is not None and partition.leader.under_min_isr):
            self.state = LoadState.READY
            self.carry_out(self.shard.loaded(self.now()))
            return
        assert partition.leader is not None, "a partition that is led lags behind its epoch"
        waiting = partition.wait_for_high_watermark(partition.leader.leader_epoch_start_offset, self.commit_timeout_ms)
        waiting.when_done(lambda outcome: self._waited(outcome.result()))

    def _waited(self, error: ErrorCode) -> None:
        if error not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self.state = LoadState.FAILED if self.state is LoadState.LOADING else self.state
        else:
            self._await_what_was_loaded()

    def _loading(self, loading: Loading, offset: int, end: int) -> Iterator[None]:
        while offset < end:
            chunk = self.partition.log.read(offset, LOAD_CHUNK_BYTES, limit=end, min_one=True)
            if chunk is None or not len(chunk):
                break
            offset = max(loading.feed(memoryview(chunk.tobytes())), offset + 1)
            yield
        while loading.apply(LOAD_CHUNK_RECORDS):
            yield

    def resign(self) -> None:
        """Another broker coordinates these groups now."""
        self.state = LoadState.RESIGNED
        if self._timer is not None:
            self._timer.cancel()
        for token, answer in self.shard.unload(self.now()).answers:
            _deferred(token).complete(answer)
        pending, self._pending = self._pending, deque()
        for write in pending:
            if write.done is not None:
                write.done(ErrorCode.NOT_COORDINATOR)
        self._drained(ErrorCode.NOT_COORDINATOR)

    # -- steps ----------------------------------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        """Give the answers of a step, write its records, and tell the core the outcome when it waits for it."""
        for happening in step.happened:
            self._note(happening)
        for token, answer in step.answers:
            _deferred(token).complete(answer)
        if step.records:
            self.write(step.records, lambda error: self._step_written(step, error))
        self._arm()

    def _note(self, happening: Happening) -> None:
        facts: dict[str, object] = {"group": happening.group, "generation": happening.generation}
        member = happening.member
        if member is not None:
            facts |= {"member": member.member_id, "client_id": member.client_id, "address": member.client_host[1:]}
        (self._log.info if happening.notable else self._log.debug)(happening.event, **facts)

    def _step_written(self, step: Step, error: ErrorCode) -> None:
        if error:
            self._log.warning("group metadata was not written", error=error.name)
        if step.write is not None and self.state is LoadState.READY:
            self.carry_out(self.shard.written(step.write, group_write_error(error), self.now()))

    def write(self, records: Sequence[CoordinatorRecord], done: Done) -> None:
        """Append records as one batch; `done` hears of it when they have taken effect, or why they do not."""
        result = self.partition.append(self._batch(records), origin=AppendOrigin.COORDINATOR)
        end_offset = self.partition.log_end_offset
        if isinstance(result, AppendRejected):
            done(result.error)
            return
        self._pending.append(PendingWrite(end_offset, records, done))
        if self.partition.high_watermark >= end_offset:
            self._advance()
        else:
            self._await_high_watermark(end_offset)

    def write_independent(self, records: Sequence[CoordinatorRecord], done: Done) -> None:
        """Append records that need not stand or fall together, in as many batches as it takes."""
        size, start = 0, 0
        for index, record in enumerate(records):
            size += sum(len(part or b"") for part in encode_record(record)) + 32
            if size > BATCH_BYTES_MAX:
                self.write(records[start : index + 1], _ignore)
                size, start = 0, index + 1
        if records[start:]:
            self.write(records[start:], done)
        else:
            done(ErrorCode.NONE)

    def when_drained(self, callback: Done) -> None:
        """Call back once everything appended so far has taken effect: at once, with one replica. With NOT_COORDINATOR
        when another broker is to know what becomes of it: nothing is known here then."""
        if self._pending:
            self._when_drained.append(callback)
        else:
            callback(ErrorCode.NONE)

    def _batch(self, records: Sequence[CoordinatorRecord]) -> bytearray:
        builder = BatchBuilder(compression=self.compression)
        now_ms = self._clock.wall_ms()
        for record in records:
            key, value = encode_record(record)
            builder.append(now_ms, key, value)
        return builder.build()

    def _await_high_watermark(self, end_offset: int) -> None:
        waiting = self.partition.wait_for_high_watermark(end_offset, self.commit_timeout_ms)
        waiting.when_done(lambda outcome: self._high_watermark(end_offset, outcome))

    def _high_watermark(self, end_offset: int, outcome: Deferred[ErrorCode]) -> None:
        error = outcome.result()
        if not error:
            self._advance()
            return
        for write in self._pending:
            if write.end_offset <= end_offset and write.done is not None:
                done, write.done = write.done, None
                done(error)
        if error == ErrorCode.REQUEST_TIMED_OUT and self.state is LoadState.READY:
            # Nobody waits for them any more, but they are in the log and take effect if they get through.
            self._await_high_watermark(end_offset)

    def _advance(self) -> None:
        while self._pending and self._pending[0].end_offset <= self.partition.high_watermark:
            write = self._pending.popleft()
            for record in write.records:
                self.shard.replay(record)
            if write.done is not None:
                write.done(ErrorCode.NONE)
        if not self._pending:
            self._drained(ErrorCode.NONE)

    def _drained(self, error: ErrorCode) -> None:
        waiting, self._when_drained = self._when_drained, []
        for callback in waiting:
            callback(error)

    # -- time -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer for the next deadline. Heartbeats move deadlines later, which needs no new timer."""
        next_ms = self.shard.deadlines.next_ms()
        if next_ms is None or self.state is not LoadState.READY:
            return
        if self._timer is not None and self._timer.pending:
            if self._timer.deadline_ms <= next_ms:
                return
            self._timer.cancel()
        self._timer = self._timers.call_later(next_ms - self._clock.monotonic_ms(), self._deadline)

    def _deadline(self) -> None:
        self._timer = None
        for step in self.shard.expired(self.now()):
            self.carry_out(step)
        self._arm()


def group_write_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when its group's metadata could not be written; it must be an error that it knows."""
    match error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def offset_write_error(error: ErrorCode) -> ErrorCode:
    """The same for committed offsets, where a commit that is too large has an error of its own."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return group_write_error(error)


def _deferred(token: object) -> Deferred[Any]:
    assert isinstance(token, Deferred)
    return token


def _ignore(_: ErrorCode) -> None:
    """A batch that failed is followed by another one, or by the next round of the same work."""
