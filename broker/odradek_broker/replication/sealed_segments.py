"""Flushes of sealed segments (all but the active one) soon after a roll, so that a start after a crash reads little
more than the last segment of each log (the task "flush-log" of UnifiedLog.roll).

Owns the time of each flush and of the recovery point checkpoint after it. Flushes one log at a time in each directory:
Produces wait longer while a disk flushes several. Leaves flushing, and the recovery point, to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from odradek_broker.timers import TimerHandle, Timers
from odradek_log.directory import LogDirectory
from odradek_log.log import Log

if TYPE_CHECKING:
    from odradek_broker.disk_executor import DiskExecutor

CHECKPOINT_DELAY_MS = 1000
"""The longest time between a flush and the checkpoint that records it. Kafka waits for the next
`log.flush.offset.checkpoint.interval.ms`; after a crash it recovers the segments that were rolled since then."""


class SealedSegments:
    """Flushes the sealed segments of one broker; used on the event loop only."""

    def __init__(
        self, executor: DiskExecutor, timers: Timers, directory_failed: Callable[[LogDirectory], None]
    ) -> None:
        """`directory_failed` is called with a directory whose checkpoint cannot be written."""
        self._executor = executor
        self._timers = timers
        self._directory_failed = directory_failed
        self._waiting: dict[LogDirectory, dict[Log, None]] = {}
        """The logs to flush next, for each directory in which a log is being flushed."""
        self._checkpoints: dict[LogDirectory, TimerHandle] = {}

    def flush_soon(self, directory: LogDirectory, log: Log) -> None:
        """Flush all but the log's active segment, after the logs of this directory that already wait."""
        waiting = self._waiting.get(directory)
        if waiting is None:
            self._waiting[directory] = {}
            self._flush(directory, log)
        else:
            waiting[log] = None

    def flush_missed_and_checkpoint(self, directories: Iterable[LogDirectory]) -> None:
        """Write the recovery points. Flush again the logs whose last flush ended early, because retention deleted a
        segment in the meantime."""
        for directory in directories:
            for log in directory.logs.values():
                if log.has_unflushed_sealed:
                    self.flush_soon(directory, log)
            self._write(directory)

    def _flush(self, directory: LogDirectory, log: Log) -> None:
        future = self._executor.run("flush of sealed segments", partial(_flush_sealed, log))
        if future is not None:
            future.add_done_callback(partial(self._flushed, directory))

    def _flushed(self, directory: LogDirectory, _: asyncio.Future[None]) -> None:
        waiting = self._waiting[directory]
        if waiting:
            log = next(iter(waiting))
            del waiting[log]
            self._flush(directory, log)
        else:
            del self._waiting[directory]
        if directory not in self._checkpoints and not self._executor.stopped:
            due = partial(self._write, directory)
            self._checkpoints[directory] = self._timers.call_later(CHECKPOINT_DELAY_MS, due)

    def _write(self, directory: LogDirectory) -> None:
        timer = self._checkpoints.pop(directory, None)
        if timer is not None:
            timer.cancel()
        if directory.offline:
            return
        directory.prepare_checkpoints()

        def write() -> None:
            if not directory.write_checkpoints():
                self._executor.to_loop(partial(self._directory_failed, directory))

        self._executor.run("recovery point checkpoint", write)


def _flush_sealed(log: Log) -> None:
    with suppress(OSError):  # the log reports it
        log.flush_sealed()
