"""The log cleaner: compacts the dirtiest logs (Kafka's LogCleaner).

Owns the choice of the dirtiest log, the order of the slices of work, and the state of a log that cannot be cleaned.
Leaves the compaction of a log to `odradek_log.cleaner`. Kafka's cleaner threads are tasks here: up to
`log.cleaner.threads` logs are compacted at a time, and share the buffers. Slices that compute run on the event loop,
slices that wait for the disk on the disk executor. Between two slices the loop runs other callbacks, which may end the
pass; nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.logger import Logger
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_broker.storage.cleaner_throttle import CleanerThrottle
from odradek_broker.timers import Timers
from odradek_log.cleaner.cleaner import Cleaner, CleanerConfig, SegmentReplacement, Slice, log_to_clean
from odradek_log.cleaner.log_to_clean import LogToClean

if TYPE_CHECKING:
    from odradek_broker.disk_executor import DiskExecutor

_SLICE_US = 100
_SLICE_BESIDE_REQUESTS_US = 20
"""The longest time that a request waits for one log; handling a request takes about as long."""
_REQUEST_CHECK_INTERVAL_S = 0.001
_REQUEST_CHECK_INTERVAL_WHILE_BUSY_S = 0.02


class PassStats(NamedTuple):
    """The cost of one pass over a log."""

    took_ms: int
    bytes_read: int
    bytes_written: int
    buffer_utilization: float


@dataclass(slots=True)
class CleanerTotals:
    """The sums over all completed passes."""

    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0

    def add(self, cleaning: Cleaner) -> None:
        self.passes += 1
        self.bytes_read += cleaning.bytes_read
        self.bytes_written += cleaning.bytes_written
        self.records_read += cleaning.records_read
        self.records_written += cleaning.records_written


class LogCleaner:
    """The cleaner of one broker, created with the first log to compact."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        log_directories: LogDirectories,
        partitions: Partitions,
        executor: DiskExecutor,
        delete_old_segments: Callable[[Iterable[Partition]], None],
        timers: Timers,
        clock: Clock,
        log: Logger,
        requests_handled: Callable[[], int],
    ) -> None:
        """`requests_handled` returns the number of requests so far, so that slices are shorter while requests arrive;
        `delete_old_segments` applies retention to partitions that were cleaned."""
        self._config = config
        self._log_directories = log_directories
        self._partitions = partitions
        self._executor = executor
        self._delete_old_segments = delete_old_segments
        self._clock = clock
        self._log = log
        self._requests_handled = requests_handled
        self._handled = 0
        self._slice_us = _SLICE_US
        self._next_check_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._throttle = CleanerThrottle(timers)
        self.max_dirty_ratio = 0.0
        """The dirty ratio of the dirtiest log at the last check."""
        self.last_run_ms = clock.monotonic_ms()
        self.last_pass = PassStats(0, 0, 0, 0.0)
        self.totals = CleanerTotals()

    def run_soon(self) -> None:
        """Clean the logs that are dirty enough, up to `log.cleaner.threads` at a time."""
        if not self._stopped and len(self._tasks) < self._threads():
            task = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def run(self) -> None:
        """Clean now, and return when every log that was dirty enough at the call is clean."""
        await self._until_idle()
        self.run_soon()
        await self._until_idle()

    async def _until_idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Stop cleaning. When this returns, no slice runs; a pass in progress is left as after a crash."""
        self._stopped = True
        self._throttle.stop()
        await self._until_idle()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("log cleaner failed", exc_info=error)

    def _threads(self) -> int:
        return self._config().integer("log.cleaner.threads")

    async def _run(self) -> None:
        cleaned: list[Partition] = []
        while not self._stopped and (found := self._dirtiest()) is not None:
            self.run_soon()  # for another log, if there are more threads
            if await self._clean(*found):
                cleaned.append(found[0])
        # Retention skips logs while they are cleaned.
        self._delete_old_segments(cleaned)

    # -- the choice of a log ------------------------------------------------------------------------------------------

    def _dirtiest(self) -> tuple[Partition, LogToClean] | None:
        """Return the dirtiest partition; None if none is dirty enough."""
        now_ms = self._clock.wall_ms()
        self.last_run_ms = self._clock.monotonic_ms()
        best: tuple[Partition, LogToClean] | None = None
        self.max_dirty_ratio = 0.0
        for partition in list(self._partitions):
            to_clean = self._log_to_clean(partition, now_ms)
            if to_clean is None:
                continue
            self.max_dirty_ratio = max(self.max_dirty_ratio, to_clean.cleanable_ratio)
            if to_clean.is_cleanable(partition.log.config) and (
                best is None or to_clean.cleanable_ratio > best[1].cleanable_ratio
            ):
                best = partition, to_clean
        return best

    def _log_to_clean(self, partition: Partition, now_ms: int) -> LogToClean | None:
        log = partition.served_log
        if log is None or log.offline_cause is not None or not log.config.compact or partition.future is not None:
            return None
        if log.cleaner.in_progress:
            return None
        if log.cleaner.uncleanable_error is not None or len(log.segments) < 2:
            return None
        try:
            return log_to_clean(log, partition.last_stable_offset, now_ms)
        except STORAGE_ERRORS:
            partition.take_offline()
            return None

    # -- one pass -----------------------------------------------------------------------------------------------------

    async def _clean(self, partition: Partition, to_clean: LogToClean) -> bool:
        """Make one pass; return whether it was completed."""
        log = partition.log
        started_ms = self._clock.monotonic_ms()
        try:
            cleaning = Cleaner(log, to_clean, self._cleaner_config(), self._clock.wall_ms())
        except STORAGE_ERRORS:
            partition.take_offline()
            return False
        slices = cleaning.slices()
        try:
            while (step := await self._next(cleaning, slices)) is not None:
                if self._must_abort(partition, cleaning):
                    return await self._abort(cleaning)
                if isinstance(step, SegmentReplacement):
                    cleaning.replace_segments(step)
                else:
                    rate = self._config().number("log.cleaner.io.max.bytes.per.second")
                    await self._throttle.record(step.bytes_read + step.bytes_written, rate)
        except Exception as error:
            if not self._must_abort(partition, cleaning):
                self._handle_error(partition, error)
            return await self._abort(cleaning)
        if self._must_abort(partition, cleaning):
            return await self._abort(cleaning)
        cleaning.complete()
        took_ms = self._clock.monotonic_ms() - started_ms
        self.last_pass = PassStats(took_ms, cleaning.bytes_read, cleaning.bytes_written, cleaning.buffer_utilization)
        self.totals.add(cleaning)
        self._log.info(
            "log cleaned",
            partition=log.name,
            dirty_from=to_clean.first_dirty_offset,
            clean_to=cleaning.end_offset,
            bytes_read=cleaning.bytes_read,
            bytes_written=cleaning.bytes_written,
            took_ms=took_ms,
        )
        directory = partition.directory
        assert directory is not None, "a cleaned partition has a directory"
        directory.prepare_cleaner_checkpoint()
        if not await self._executor.run_and_wait(directory.write_cleaner_checkpoint):
            self._log_directories.handle_failure(directory)
        return True

    async def _next(self, cleaning: Cleaner, slices: Iterator[Slice]) -> Slice | None:
        """Do one slice. A slice that computes runs on the event loop, after the callbacks that are due: on another
        thread it would hold the interpreter lock, and the loop would wait for that after every call that releases
        it."""
        if cleaning.next_slice_blocks:
            return await self._executor.run_and_wait(lambda: next(slices, None))
        await asyncio.sleep(0)
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_check_s:
            handled = self._requests_handled()
            is_busy, self._handled = handled != self._handled, handled
            self._slice_us = _SLICE_BESIDE_REQUESTS_US if is_busy else _SLICE_US
            self._next_check_s = now_s + (
                _REQUEST_CHECK_INTERVAL_WHILE_BUSY_S if is_busy else _REQUEST_CHECK_INTERVAL_S
            )
        if self._slice_us == _SLICE_BESIDE_REQUESTS_US:
            # Requests that arrived during the last slice are queued behind this task: let them run first.
            await asyncio.sleep(0)
        # A request may have to wait for one slice of each log that is being cleaned.
        cleaning.slice_us = max(self._slice_us // len(self._tasks), 1)
        return next(slices, None)

    def _must_abort(self, partition: Partition, cleaning: Cleaner) -> bool:
        """Return whether to abort the pass. A partition that moves to another directory is cleaned there later."""
        return self._stopped or cleaning.is_interrupted or partition.future is not None

    async def _abort(self, cleaning: Cleaner) -> bool:
        cleaning.abort()
        if not self._stopped:
            await self._executor.run_and_wait(cleaning.discard)
        return False

    def _handle_error(self, partition: Partition, error: Exception) -> None:
        """Take the log's directory offline after an error of the disk. After any other error serve the log, but clean
        it no more (Kafka's uncleanable partitions)."""
        log = partition.log
        if isinstance(error, OSError):
            log.go_offline("clean", error)
            partition.take_offline()
            return
        log.cleaner.uncleanable_error = error
        self._log.warning(
            "log cannot be cleaned until the next start",
            partition=log.name,
            error=f"{type(error).__name__}: {error}",
        )

    def _cleaner_config(self) -> CleanerConfig:
        """Return the settings of one pass. As in Kafka, the threads share the buffers."""
        config, threads = self._config(), max(self._threads(), 1)
        return CleanerConfig(
            config.integer("log.cleaner.dedupe.buffer.size") // threads,
            config.number("log.cleaner.io.buffer.load.factor"),
            config.integer("log.cleaner.io.buffer.size") // threads,
        )
