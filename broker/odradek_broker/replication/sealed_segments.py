"""What a log has rolled is forced to the disk soon after (the "flush-log" of UnifiedLog.roll), so that a start after
a crash reads the last segment of each log and little else.

Owns when that is done, and when how far it went is written to the recovery point checkpoint. One log at a time in each
directory: a disk that is busy with several of them makes those wait who produce. Leaves flushing to the log, which
notes what has succeeded.
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
"""Between a flush and the checkpoint that knows of it, at most: Kafka leaves it to the next turn of
`log.flush.offset.checkpoint.interval.ms`, and reads what was rolled within a minute."""


class SealedSegments:
    """Of one broker. The loop's thread only."""

    def __init__(self, executor: DiskExecutor, timers: Timers, failed: Callable[[LogDirectory], None]) -> None:
        """`failed` is told of a directory whose checkpoint cannot be written."""
        self._executor = executor
        self._timers = timers
        self._failed = failed
        self._waiting: dict[LogDirectory, dict[Log, None]] = {}
        """Of the directories in which a log is being flushed, those that come next."""
        self._checkpoints: dict[LogDirectory, TimerHandle] = {}

    def flush_soon(self, directory: LogDirectory, log: Log) -> None:
        """Flush all but the log's active segment when its turn comes."""
        waiting = self._waiting.get(directory)
        if waiting is None:
            self._waiting[directory] = {}
            self._flush(directory, log)
        else:
            waiting[log] = None

    def checkpoint(self, directories: Iterable[LogDirectory]) -> None:
        """Write how far the logs are known to be on the disk, and have flushed what was missed: while it was deleted in
        part, for instance."""
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
                self._executor.to_loop(partial(self._failed, directory))

        self._executor.run("recovery point checkpoint", write)


def _flush_sealed(log: Log) -> None:
    with suppress(OSError):  # reported by the log
        log.flush_sealed()
