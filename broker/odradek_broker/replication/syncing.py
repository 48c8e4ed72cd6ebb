"""`odradek.sync=always`: nothing is acknowledged, or shown to a reader, that is not on the disk.

What a leader has of its own log counts as far as it was synced, so that the high watermark waits for the disk as it
waits for followers; a follower asks for more only when what it has was synced. One sync of a log at a time, on a thread
for disk work, serves all who wait for it; what is appended meanwhile waits for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from odradek_log.log import Log
from odradek_log.log_errors import LogOfflineError

if TYPE_CHECKING:
    from odradek_broker.disk_executor import DiskExecutor
    from odradek_broker.replication.partition import Partition


class LogSyncer:
    """Of one broker."""

    def __init__(self, executor: DiskExecutor) -> None:
        self._executor = executor
        self._running: set[Log] = set()

    def begin(self, partition: Partition) -> None:
        """Sync what stands in the partition's log now, or as soon as the sync that runs is over; and tell it."""
        log = partition.log
        if log in self._running:
            return
        if not is_behind(log):  # `flush.messages` has been here
            partition.synced()
            return
        future = self._executor.run("sync", log.flush)
        if future is not None:
            self._running.add(log)
            future.add_done_callback(partial(self._done, partition, log))

    def _done(self, partition: Partition, log: Log, future: asyncio.Future[None]) -> None:
        """A flush that failed has taken the log offline, and its partition with it."""
        self._running.discard(log)
        if partition.served_log is log and log.failure is None:
            partition.synced()
            if is_behind(log):
                self.begin(partition)

    async def settle(self, logs: Iterable[Log]) -> None:
        """Wait until all of these logs are on the disk as far as they go now, or offline."""
        await asyncio.gather(*(self._settle(log) for log in logs if is_behind(log)))

    async def _settle(self, log: Log) -> None:
        with suppress(OSError, LogOfflineError):
            await self._executor.finish(log.flush)


def is_behind(log: Log) -> bool:
    return log.failure is None and log.recovery_point < log.log_end_offset
