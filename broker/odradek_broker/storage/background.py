"""Work besides requests: retention, compaction, flushing, checkpoints, expiry of producers, removing files.

Owns when it is done and on which thread: decisions are made on the loop, whatever waits for the disk runs on a bounded
executor. Leaves what is to be done to the logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.logger import Logger
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.partition import DISK_TROUBLE, Partition
from odradek_broker.replication.replica_manager import ReplicaManager, logs_of
from odradek_broker.timers import TimerHandle, Timers
from odradek_log.directory import LogDirectory

if TYPE_CHECKING:
    from odradek_broker.storage.log_cleaner import LogCleaner

T = TypeVar("T")

WORKERS = 2
LAG_CHECK_S = 0.5


class Background:
    """Jobs of one process. `later` is what logs get to remove their files with."""

    def __init__(self, timers: Timers, clock: Clock, log: Logger) -> None:
        self._timers = timers
        self._clock = clock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._executor: ThreadPoolExecutor | None = None
        self._repeating: dict[str, TimerHandle] = {}
        self._running: set[asyncio.Future[None]] = set()
        self._stopped = False
        self._make_cleaner: Callable[[], LogCleaner] | None = None
        self.cleaner: LogCleaner | None = None
        """There is one as soon as there was something to compact."""
        self._first_clean: asyncio.Task[None] | None = None
        self._lag_check: asyncio.TimerHandle | None = None
        self.loop_lag_s = 0.0
        """How late the event loop was at its last check: real time, whatever the user did to the clocks."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Run disk work after a while, on a worker thread."""

        def due() -> None:
            self.run("delayed disk work", callback)

        self._timers.call_later(delay_ms, due)

    def run(self, what: str, work: Callable[[], None]) -> asyncio.Future[None] | None:
        """Run disk work now, on a worker thread; trouble is logged by the log it happens in, or here. None when it is
        too late for it."""
        if self._stopped:
            return None
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="odradek-disk")
        future = self._loop.run_in_executor(self._executor, work)
        self._running.add(future)
        future.add_done_callback(lambda done: self._finished(what, done))
        return future

    async def finish(self, work: Callable[[], T]) -> T:
        """Run disk work on a worker thread, and wait for its result, also after `stop`. Raises what it raises."""
        if self._stopped:
            return await asyncio.to_thread(work)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="odradek-disk")
        return await self._loop.run_in_executor(self._executor, work)

    def to_loop(self, callback: Callable[[], None]) -> None:
        """Run a callback soon on the loop. Any thread."""
        self._loop.call_soon_threadsafe(callback)

    @property
    def stopped(self) -> bool:
        """Whether it is too late to begin anything."""
        return self._stopped

    async def stop(self) -> None:
        """Start nothing more; wait for what runs."""
        self._stopped = True
        for handle in self._repeating.values():
            handle.cancel()
        if self._lag_check is not None:
            self._lag_check.cancel()
        if self._first_clean is not None:
            await asyncio.wait([self._first_clean])
        if self.cleaner is not None:
            await self.cleaner.stop()
        if self._running:
            await asyncio.wait(self._running)
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    def start(
        self,
        config: Callable[[], BrokerConfig],
        replica_manager: ReplicaManager,
        partitions: Partitions,
        check_lag: Callable[[], None],
        requests_handled: Callable[[], int],
    ) -> None:
        """Begin the repeating jobs of one broker; each reads its interval when it is due. `requests_handled` counts
        them, for what gives way to them."""
        jobs: tuple[tuple[str, Callable[[], None]], ...] = (
            ("log.retention.check.interval.ms", lambda: self.retain(partitions)),
            ("log.flush.scheduler.interval.ms", lambda: self._flush_due(partitions)),
            ("replica.high.watermark.checkpoint.interval.ms", lambda: self._checkpoint(replica_manager, partitions)),
            ("log.flush.offset.checkpoint.interval.ms", replica_manager.checkpoint_recovery),
            ("log.flush.start.offset.checkpoint.interval.ms", lambda: self._checkpoint_starts(replica_manager)),
            ("producer.id.expiration.check.interval.ms", lambda: self._expire_producers(partitions)),
        )
        if config().boolean("log.cleaner.enable"):
            self._make_cleaner = lambda: self._new_cleaner(config, replica_manager, partitions, requests_handled)
            jobs += (("log.cleaner.backoff.ms", lambda: self._clean(partitions)),)
        for setting, job in jobs:
            self._repeat(config, setting, job)
        self._repeat(config, "replica.lag.time.max.ms", check_lag, per_interval=2)

    def watch_loop(self) -> None:
        """Measure from now on how late the loop is."""
        loop = self._loop
        due = loop.time() + LAG_CHECK_S

        def check() -> None:
            self.loop_lag_s = max(loop.time() - due, 0.0)
            if not self._stopped:
                self.watch_loop()

        self._lag_check = loop.call_at(due, check)

    def retain(self, partitions: Iterable[Partition]) -> None:
        """Retention now: delete what is too old or too much, below the high watermark.

        A segment is not rolled for its age alone: as in Kafka that happens when something is appended.
        """
        for partition in list(partitions):
            log = partition.served_log
            if log is None or log.failure is not None:
                continue
            try:
                if log.delete_old_segments(partition.high_watermark):
                    partition.log_start_moved()
            except DISK_TROUBLE:
                partition.take_offline()

    async def clean_logs(self, partitions: Iterable[Partition]) -> None:
        """The log cleaner's work now: compact what is dirty enough, if `log.cleaner.enable`."""
        await self._load_cleaner(partitions)
        if self.cleaner is not None:
            await self.cleaner.run()

    def checkpoint_high_watermarks(self, replica_manager: ReplicaManager, partitions: Iterable[Partition]) -> None:
        """Write them now, in this thread: at shutdown."""
        self._offer_high_watermarks(replica_manager, partitions)
        for directory in replica_manager.healthy:
            directory.write_high_watermarks()

    # -- jobs -----------------------------------------------------------------------------------------------------

    def _repeat(
        self, config: Callable[[], BrokerConfig], setting: str, job: Callable[[], None], per_interval: int = 1
    ) -> None:
        # An interval of Long.MAX_VALUE stands for never; what is that far away need not be waited for.
        interval_ms = config().integer(setting)
        if self._stopped or interval_ms > 1 << 40:
            return

        def due() -> None:
            try:
                job()
            except Exception as error:
                self._log.error("background work failed", job=setting, exc_info=error)
            self._repeat(config, setting, job, per_interval)

        self._repeating[setting] = self._timers.call_later(max(interval_ms // per_interval, 1), due)

    def _clean(self, partitions: Iterable[Partition]) -> None:
        if self.cleaner is not None:
            self.cleaner.run_soon()
        elif self._first_clean is None or self._first_clean.done():
            self._first_clean = self._loop.create_task(self._clean_first(partitions))

    async def _clean_first(self, partitions: Iterable[Partition]) -> None:
        await self._load_cleaner(partitions)
        if self.cleaner is not None:
            self.cleaner.run_soon()

    async def _load_cleaner(self, partitions: Iterable[Partition]) -> None:
        """Only who has compacted topics pays for loading it, and no request waits for that."""
        if (
            self.cleaner is None
            and self._make_cleaner is not None
            and any(log.config.compact for log in logs_of(partitions))
        ):
            await self.finish(_import_cleaner)
            if self.cleaner is None and not self._stopped:
                self.cleaner = self._make_cleaner()

    def _new_cleaner(
        self,
        config: Callable[[], BrokerConfig],
        replica_manager: ReplicaManager,
        partitions: Partitions,
        requests_handled: Callable[[], int],
    ) -> LogCleaner:
        cleaner = _import_cleaner()
        return cleaner(
            config, replica_manager, partitions, self, self._timers, self._clock, self._log, requests_handled
        )

    def _flush_due(self, partitions: Iterable[Partition]) -> None:
        """`flush.ms`: force to the disk what was appended, if the last time was so long ago."""
        now_ms = self._clock.wall_ms()
        for log in logs_of(partitions):
            if now_ms - log.flushing.flushed_ms >= log.config.flush_ms and log.log_end_offset > log.recovery_point:
                self.run("flush", log.flush)

    def _checkpoint(self, replica_manager: ReplicaManager, partitions: Iterable[Partition]) -> None:
        for directory in self._offer_high_watermarks(replica_manager, partitions):
            self.run(
                "high watermark checkpoint", self._or_fail(replica_manager, directory, directory.write_high_watermarks)
            )

    def _checkpoint_starts(self, replica_manager: ReplicaManager) -> None:
        """Write where logs begin whose first records were deleted: after a crash they would be there again."""
        for directory in replica_manager.healthy:
            directory.offer_start_offsets()
            work = self._or_fail(replica_manager, directory, directory.write_start_offsets)
            self.run("start offset checkpoint", work)

    def _or_fail(
        self, replica_manager: ReplicaManager, directory: LogDirectory, write: Callable[[], bool]
    ) -> Callable[[], None]:
        """Where checkpoints cannot be written, the disk has failed, even if what is written to open files seems to
        arrive."""

        def work() -> None:
            if not write():
                self.to_loop(lambda: replica_manager.fail(directory))

        return work

    def _expire_producers(self, partitions: Iterable[Partition]) -> None:
        now_ms = self._clock.wall_ms()
        for log in logs_of(partitions):
            log.producers.remove_expired(now_ms)

    @staticmethod
    def _offer_high_watermarks(replica_manager: ReplicaManager, partitions: Iterable[Partition]) -> list[LogDirectory]:
        """Which directories have news to write."""
        found = {
            directory: replica_manager.unclaimed_high_watermarks(directory) for directory in replica_manager.healthy
        }
        for partition in partitions:
            if partition.directory is not None and partition.directory in found:
                found[partition.directory][partition.topic, partition.index] = partition.high_watermark
        return [directory for directory, offsets in found.items() if directory.offer_high_watermarks(offsets)]

    def _finished(self, what: str, future: asyncio.Future[None]) -> None:
        self._running.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._log.error("disk work failed", work=what, error=f"{type(error).__name__}: {error}")


def _import_cleaner() -> type[LogCleaner]:
    from odradek_broker.storage.log_cleaner import LogCleaner

    return LogCleaner
