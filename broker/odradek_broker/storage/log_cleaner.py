"""The log cleaner: which log is compacted next, how many at once, and on which thread (Kafka's LogCleaner).

Owns choosing the dirtiest log, doing the work in slices, those that wait on the disk's threads, and what becomes of a
log that cannot be cleaned. A thread of Kafka's is a task here: `log.cleaner.threads` says how many logs are compacted
at once, and that shares the buffers among them; the slices that compute take turns on the loop. Leaves what is done to
a log to `odradek_log.cleaner`. Between two slices the loop does whatever is due, and that may end the pass: that is why
nothing here needs a lock.
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
"""A request may have to wait for a slice, and takes hardly longer itself."""
_LOOK_S = 0.001
_REMEMBER_S = 0.02


class Pass(NamedTuple):
    """What one pass over a log took."""

    took_ms: int
    bytes_read: int
    bytes_written: int
    buffer_utilization: float


@dataclass(slots=True)
class Totals:
    """Of all passes that came to their end."""

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
    """Of one broker; there while it has something to compact."""

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
        """`requests_handled` counts the requests of the broker, so that the cleaner gives way to them;
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
        self._look_again_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._throttle = CleanerThrottle(timers)
        self.max_dirty_ratio = 0.0
        """Of the dirtiest log when one was looked for last."""
        self.last_run_ms = clock.monotonic_ms()
        self.last_pass = Pass(0, 0, 0, 0.0)
        self.totals = Totals()

    def run_soon(self) -> None:
        """Clean what is dirty enough, as many logs at once as `log.cleaner.threads` allows."""
        if not self._stopped and len(self._tasks) < self._threads():
            task = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def run(self) -> None:
        """The same on demand: when this returns, nothing is dirty enough that was there when it was called."""
        await self._until_idle()
        self.run_soon()
        await self._until_idle()

    async def _until_idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Begin nothing more. When this returns, no slice is being worked on; a pass under way is left as a crash would
        leave it."""
        self._stopped = True
        self._throttle.stop()
        await self._until_idle()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("the log cleaner failed", exc_info=error)

    def _threads(self) -> int:
        return self._config().integer("log.cleaner.threads")

    async def _run(self) -> None:
        cleaned: list[Partition] = []
        while not self._stopped and (found := self._dirtiest()) is not None:
            self.run_soon()  # there may be another one, and a thread for it
            if await self._clean(*found):
                cleaned.append(found[0])
        # Retention left them alone meanwhile.
        self._delete_old_segments(cleaned)

    # --- which log

    def _dirtiest(self) -> tuple[Partition, LogToClean] | None:
        """None if no log is dirty enough."""
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
        if log is None or log.failure is not None or not log.config.compact or partition.future is not None:
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

    # --- one log

    async def _clean(self, partition: Partition, to_clean: LogToClean) -> bool:
        """One pass; whether it came to its end."""
        log = partition.log
        started_ms = self._clock.monotonic_ms()
        try:
            cleaning = Cleaner(log, to_clean, self._limits(), self._clock.wall_ms())
        except STORAGE_ERRORS:
            partition.take_offline()
            return False
        slices = cleaning.slices()
        try:
            while (step := await self._next(cleaning, slices)) is not None:
                if self._is_pointless(partition, cleaning):
                    return await self._give_up(cleaning)
                if isinstance(step, SegmentReplacement):
                    cleaning.replace_segments(step)
                else:
                    rate = self._config().number("log.cleaner.io.max.bytes.per.second")
                    await self._throttle.moved(step.bytes_read + step.bytes_written, rate)
        except Exception as error:
            if not self._is_pointless(partition, cleaning):
                self._met_trouble(partition, error)
            return await self._give_up(cleaning)
        if self._is_pointless(partition, cleaning):
            return await self._give_up(cleaning)
        cleaning.complete()
        took_ms = self._clock.monotonic_ms() - started_ms
        self.last_pass = Pass(took_ms, cleaning.bytes_read, cleaning.bytes_written, cleaning.buffer_utilization)
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
        assert directory is not None, "what was cleaned has a directory"
        directory.prepare_cleaner_checkpoint()
        if not await self._executor.finish(directory.write_cleaner_checkpoint):
            self._log_directories.handle_failure(directory)
        return True

    async def _next(self, cleaning: Cleaner, slices: Iterator[Slice]) -> Slice | None:
        """A slice of work. What only computes is done here on the loop, after all that is due: on another thread it
        would hold the interpreter as well, and the loop would wait for it at every call that gives the interpreter
        away."""
        if cleaning.waits:
            return await self._executor.finish(lambda: next(slices, None))
        await asyncio.sleep(0)
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._look_again_s:
            handled = self._requests_handled()
            is_busy, self._handled = handled != self._handled, handled
            self._slice_us = _SLICE_BESIDE_REQUESTS_US if is_busy else _SLICE_US
            self._look_again_s = now_s + (_REMEMBER_S if is_busy else _LOOK_S)
        if self._slice_us == _SLICE_BESIDE_REQUESTS_US:
            # What came during the last slice stands behind us as yet: the loop looked for it after we were due.
            await asyncio.sleep(0)
        # Whoever comes may have to wait for a slice of each log that is being cleaned.
        cleaning.slice_us = max(self._slice_us // len(self._tasks), 1)
        return next(slices, None)

    def _is_pointless(self, partition: Partition, cleaning: Cleaner) -> bool:
        """A partition that moves to another directory is cleaned there."""
        return self._stopped or cleaning.is_interrupted or partition.future is not None

    async def _give_up(self, cleaning: Cleaner) -> bool:
        cleaning.abort()
        if not self._stopped:
            await self._executor.finish(cleaning.discard)
        return False

    def _met_trouble(self, partition: Partition, error: Exception) -> None:
        """As Kafka: where the disk fails, its directory is offline; after anything else this log is not cleaned any
        more, but served."""
        log = partition.log
        if isinstance(error, OSError):
            log.go_offline("clean", error)
            partition.take_offline()
            return
        log.cleaner.uncleanable_error = error
        self._log.warning(
            "log cannot be cleaned, and is left as it is until the next start",
            partition=log.name,
            error=f"{type(error).__name__}: {error}",
        )

    def _limits(self) -> CleanerConfig:
        """Of one pass: as Kafka's, the buffers are shared among the threads."""
        config, threads = self._config(), max(self._threads(), 1)
        return CleanerConfig(
            config.integer("log.cleaner.dedupe.buffer.size") // threads,
            config.number("log.cleaner.io.buffer.load.factor"),
            config.integer("log.cleaner.io.buffer.size") // threads,
        )
