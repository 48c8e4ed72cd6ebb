"""The log manager: a broker's repeating work on its logs (Kafka's LogManager).

Owns when retention, compaction, flushes, checkpoints and the expiry of producers happen. Decisions are made on the
event loop, and work that waits for the disk runs on the disk executor. Leaves to each log the decision which segments
to delete, flush or compact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.logger import Logger
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_broker.replication.replica_logs import ReplicaLogs
from odradek_broker.replication.replica_manager import healthy_logs
from odradek_broker.replication.sealed_segments import SealedSegments
from odradek_broker.timers import TimerHandle, Timers
from odradek_log.directory import LogDirectory

if TYPE_CHECKING:
    from odradek_broker.storage.log_cleaner import LogCleaner

NEVER_MS = 1 << 40
"""A longer interval, such as Long.MAX_VALUE, means never."""


class LogManager:
    """The repeating work of one broker, between `start` and `stop`."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        log_directories: LogDirectories,
        replica_logs: ReplicaLogs,
        sealed_segments: SealedSegments,
        partitions: Partitions,
        executor: DiskExecutor,
        timers: Timers,
        clock: Clock,
        log: Logger,
        requests_handled: Callable[[], int],
    ) -> None:
        """`requests_handled` returns the number of requests so far: the log cleaner gives way to requests."""
        self._config = config
        self._log_directories = log_directories
        self._replica_logs = replica_logs
        self._sealed_segments = sealed_segments
        self._partitions = partitions
        self._executor = executor
        self._timers = timers
        self._clock = clock
        self._log = log
        self._requests_handled = requests_handled
        self._loop = asyncio.get_running_loop()
        self._repeating: dict[str, TimerHandle] = {}
        self.cleaner: LogCleaner | None = None
        """The log cleaner; None until there is a log to compact."""
        self._first_clean: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self, maybe_shrink_isr: Callable[[], None]) -> None:
        """Begin the repeating jobs; each reads its interval when it is due. `maybe_shrink_isr` shrinks ISRs."""
        jobs: tuple[tuple[str, Callable[[], None]], ...] = (
            ("log.retention.check.interval.ms", lambda: self.delete_old_segments(self._partitions)),
            ("log.flush.scheduler.interval.ms", self._flush_due),
            ("replica.high.watermark.checkpoint.interval.ms", self._checkpoint_high_watermarks),
            ("log.flush.offset.checkpoint.interval.ms", self._checkpoint_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_start_offsets),
            ("producer.id.expiration.check.interval.ms", self._expire_producers),
        )
        if self._config().boolean("log.cleaner.enable"):
            jobs += (("log.cleaner.backoff.ms", self._clean),)
        for setting, job in jobs:
            self._repeat(setting, job)
        self._repeat("replica.lag.time.max.ms", maybe_shrink_isr, per_interval=2)

    async def stop(self) -> None:
        """End the repeating jobs and the compaction that runs."""
        self._stopped = True
        for handle in self._repeating.values():
            handle.cancel()
        if self._first_clean is not None:
            await asyncio.wait([self._first_clean])
        if self.cleaner is not None:
            await self.cleaner.stop()

    def delete_old_segments(self, partitions: Iterable[Partition]) -> None:
        """Delete segments that retention has expired, up to the high watermark of each partition.

        A segment is not rolled because of its age alone: as in Kafka the next append rolls it.
        """
        for partition in list(partitions):
            log = partition.served_log
            if log is None or log.offline_cause is not None:
                continue
            try:
                if log.delete_old_segments(partition.high_watermark):
                    partition.log_start_offset_advanced()
            except STORAGE_ERRORS:
                partition.take_offline()

    async def clean_logs(self) -> None:
        """Compact every log that is dirty enough, unless `log.cleaner.enable` is false."""
        await self._load_cleaner()
        if self.cleaner is not None:
            await self.cleaner.run()

    def write_high_watermarks(self) -> None:
        """Write the checkpoints of high watermarks in this thread, at a shutdown."""
        self._prepare_high_watermarks()
        for directory in self._log_directories.online:
            directory.write_high_watermarks()

    # -- jobs -----------------------------------------------------------------------------------------------------

    def _repeat(self, setting: str, job: Callable[[], None], per_interval: int = 1) -> None:
        interval_ms = self._config().integer(setting)
        if self._stopped or interval_ms > NEVER_MS:
            return

        def due() -> None:
            try:
                job()
            except Exception as error:
                self._log.error("background work failed", job=setting, exc_info=error)
            self._repeat(setting, job, per_interval)

        self._repeating[setting] = self._timers.call_later(max(interval_ms // per_interval, 1), due)

    def _clean(self) -> None:
        if self.cleaner is not None:
            self.cleaner.run_soon()
        elif self._first_clean is None or self._first_clean.done():
            self._first_clean = self._loop.create_task(self._clean_first())

    async def _clean_first(self) -> None:
        await self._load_cleaner()
        if self.cleaner is not None:
            self.cleaner.run_soon()

    async def _load_cleaner(self) -> None:
        """Import the cleaner on a worker thread, and only if a topic is compacted, so that no request waits for it."""
        if self.cleaner is not None or not self._config().boolean("log.cleaner.enable"):
            return
        if any(log.config.compact for log in healthy_logs(self._partitions)):
            cleaner = await self._executor.run_and_wait(import_cleaner)
            if self.cleaner is None and not self._stopped:
                self.cleaner = cleaner(
                    config=self._config,
                    log_directories=self._log_directories,
                    partitions=self._partitions,
                    executor=self._executor,
                    delete_old_segments=self.delete_old_segments,
                    timers=self._timers,
                    clock=self._clock,
                    log=self._log,
                    requests_handled=self._requests_handled,
                )

    def _flush_due(self) -> None:
        """Flush logs whose last flush was `flush.ms` ago."""
        now_ms = self._clock.wall_ms()
        for log in healthy_logs(self._partitions):
            if now_ms - log.flusher.flushed_ms >= log.config.flush_ms and log.log_end_offset > log.recovery_point:
                self._executor.run("flush", log.flush)

    def _checkpoint_high_watermarks(self) -> None:
        for directory in self._prepare_high_watermarks():
            self._executor.run(
                "high watermark checkpoint", self._or_take_offline(directory, directory.write_high_watermarks)
            )

    def _checkpoint_recovery_points(self) -> None:
        self._sealed_segments.flush_missed_and_checkpoint(self._log_directories.online)

    def _checkpoint_start_offsets(self) -> None:
        """Write the start offsets of logs whose first records were deleted: a crash must not bring them back."""
        for directory in self._log_directories.online:
            directory.prepare_start_offsets()
            self._executor.run(
                "start offset checkpoint", self._or_take_offline(directory, directory.write_start_offsets)
            )

    def _or_take_offline(self, directory: LogDirectory, write: Callable[[], bool]) -> Callable[[], None]:
        """Return a function that writes the checkpoint, or takes the directory offline if that fails, even if writes to
        open files seem to succeed."""

        def work() -> None:
            if not write():
                self._executor.to_loop(lambda: self._log_directories.handle_failure(directory))

        return work

    def _expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for log in healthy_logs(self._partitions):
            log.producers.remove_expired(now_ms)

    def _prepare_high_watermarks(self) -> list[LogDirectory]:
        """Pass the high watermarks to the directories; return those whose checkpoint has to be written."""
        online = self._log_directories.online
        found = {directory: self._replica_logs.unclaimed_high_watermarks(directory) for directory in online}
        for partition in self._partitions:
            if partition.directory is not None and partition.directory in found:
                found[partition.directory][partition.topic, partition.index] = partition.high_watermark
        return [directory for directory, offsets in found.items() if directory.prepare_high_watermarks(offsets)]


def import_cleaner() -> type[LogCleaner]:
    from odradek_broker.storage.log_cleaner import LogCleaner

    return LogCleaner
