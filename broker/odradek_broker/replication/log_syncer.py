"""`odradek.sync=always`: no record is acknowledged, or visible to readers, before it is on the disk.

The leader's own log counts only up to its last sync, so that the high watermark waits for the disk as it waits for
followers; a follower syncs the records of one Fetch before it sends the next. One sync of a log runs at a time, on a
thread of the disk executor, and serves all requests that wait; records appended meanwhile wait for the next one.
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
    """Syncs the logs of one broker."""

    def __init__(self, executor: DiskExecutor) -> None:
        self._executor = executor
        self._running: set[Log] = set()

    def begin(self, partition: Partition) -> None:
        """Sync the partition's log up to its end, then call `partition.on_synced`. If a sync of this log runs, the next
        one begins at its end."""
        log = partition.log
        if log in self._running:
            return
        if not is_unsynced(log):  # `flush.messages` has flushed it
            partition.on_synced()
            return
        future = self._executor.run("sync", log.flush)
        if future is not None:
            self._running.add(log)
            future.add_done_callback(partial(self._done, partition, log))

    def _done(self, partition: Partition, log: Log, future: asyncio.Future[None]) -> None:
        """Report the sync to the partition, and sync the records that were appended meanwhile. Does nothing after a
        sync that failed, because the log is offline."""
        self._running.discard(log)
        if partition.served_log is log and log.offline_cause is None:
            partition.on_synced()
            if is_unsynced(log):
                self.begin(partition)

    async def wait_until_synced(self, logs: Iterable[Log]) -> None:
        """Wait until each of these logs is on the disk up to its present end, or offline."""
        await asyncio.gather(*(self._sync(log) for log in logs if is_unsynced(log)))

    async def _sync(self, log: Log) -> None:
        with suppress(OSError, LogOfflineError):
            await self._executor.run_and_wait(log.flush)


def is_unsynced(log: Log) -> bool:
    """Return whether a healthy log has records that are not on the disk."""
    return log.offline_cause is None and log.recovery_point < log.log_end_offset
