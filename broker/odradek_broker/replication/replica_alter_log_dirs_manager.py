"""Moves of replicas from one log directory of this broker to another (AlterReplicaLogDirs).

Owns copying the current log to the future log, in turns, until the future log has caught up and replaces the current
one; a restart continues the move. The controller must accept the new directory before the future log replaces the
current one: if the broker stops in between, the future log is the right one (KIP-858). Leaves creating, promoting and
deleting logs to `future_logs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.replication.assignments_manager import AssignmentsManager
from odradek_broker.replication.core.partition_follower import EpochEnd, truncation_point
from odradek_broker.replication.core.replication_quota import ReplicationQuota
from odradek_broker.replication.future_logs import FutureLogs
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_wire.records.record_errors import CorruptRecordError

T = TypeVar("T")

_CHUNKS_PER_TURN = 8
_PAUSE_MS = 100
"""The wait before the next turn of a move over its quota, and before the controller is asked again."""


@dataclass(slots=True, eq=False)
class Move:
    """The move of one replica to `directory`."""

    directory: LogDirectory
    future: Log
    assigned: bool = False
    """Whether the controller has accepted the new directory."""
    flushed: bool = False
    """Whether the future log was flushed after it had caught up."""


class ReplicaAlterLogDirsManager:
    """One task for all moves, which runs while there are any."""

    def __init__(
        self,
        state: BrokerState,
        *,
        log_directories: LogDirectories,
        future_logs: FutureLogs,
        assignments_manager: AssignmentsManager,
        quota: ReplicationQuota,
        executor: DiskExecutor,
    ) -> None:
        """`quota` limits the bytes that are copied from directory to directory."""
        self._state = state
        self._log_directories = log_directories
        self._future_logs = future_logs
        self._assignments_manager = assignments_manager
        self._quota = quota
        self._executor = executor
        self._moves: dict[Partition, Move] = {}
        self._task: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        """Requests that begin many moves, in several turns of the event loop."""

    def destination(self, partition: Partition) -> LogDirectory | None:
        """Return the directory that the partition moves to; None if it does not move."""
        move = self._moves.get(partition)
        return None if move is None else move.directory

    def begin(self, partition: Partition, directory: LogDirectory) -> None:
        """Begin to move the partition to the directory; this cancels a move to another one. Raises `OSError`."""
        move = self._moves.get(partition)
        if move is not None and move.directory is directory:
            return
        self.cancel(partition)
        if partition.directory is not directory:
            self.begin_with(partition, directory, self._future_logs.create(partition, directory))

    def begin_with(self, partition: Partition, directory: LogDirectory, future: Log) -> None:
        """Begin to fill this future log, or continue after a restart."""
        partition.future = future
        self._moves[partition] = Move(directory, future)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self, partition: Partition) -> None:
        """Cancel the move of the partition. Idempotent."""
        move = self._moves.pop(partition, None)
        if move is None:
            return
        if partition.future is move.future:
            self._future_logs.delete(partition, move.directory)
        if move.assigned:
            self._assignments_manager.report([partition])

    def run_to_end(self, request: Coroutine[None, None, T]) -> Coroutine[None, None, T]:
        """Run a request that begins moves, until it ends or the manager closes. Return a coroutine that awaits its
        result; a caller that cancels the coroutine does not cancel the request."""
        task = asyncio.get_running_loop().create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return _result_of(task)

    async def close(self) -> None:
        self._moves.clear()
        tasks = [*self._requests] if self._task is None else [*self._requests, self._task]
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        try:
            while self._moves:
                for partition, move in list(self._moves.items()):
                    try:
                        if self._moves.get(partition) is move:
                            await self._continue_move(partition, move)
                    except Exception as error:
                        self._failed(partition, move, error)
                    await asyncio.sleep(0)
        finally:
            self._task = None

    def _failed(self, partition: Partition, move: Move, error: Exception) -> None:
        """Cancel the move that failed: it must not affect the others."""
        self._state.log.error(
            "replica cannot be moved to another log directory",
            partition=f"{partition.topic}-{partition.index}",
            directory=move.directory.path,
            error=str(error),
            exc_info=None if isinstance(error, (*STORAGE_ERRORS, CorruptRecordError)) else error,
        )
        if self._moves.get(partition) is move:
            self.cancel(partition)
        if isinstance(move.future.offline_cause, OSError):
            self._log_directories.handle_failure(move.directory)

    async def _continue_move(self, partition: Partition, move: Move) -> None:
        if partition.served_log is None or partition.served_log.offline_cause is not None or partition.future is None:
            self.cancel(partition)  # the partition was deleted or its disk failed
            return
        quota, timers = self._quota, self._state.timers
        if quota.is_exceeded(timers.now_ms()):
            await timers.sleep(_PAUSE_MS)
            return
        copied = 0
        for _ in range(_CHUNKS_PER_TURN):
            copied += copy(partition.log, move.future, self._state.config.integer("replica.fetch.max.bytes"))
            if move.future.log_end_offset == partition.log_end_offset:
                break
        quota.record(copied, timers.now_ms())
        if move.future.log_end_offset != partition.log_end_offset:
            return
        if not move.assigned:
            move.assigned = await self._assignments_manager.assign(partition, move.directory)
            if not move.assigned:
                await timers.sleep(_PAUSE_MS)
        elif not move.flushed:
            await self._executor.run_and_wait(move.future.flush)
            move.flushed = True
        else:
            self._future_logs.promote(partition, move.directory)
            del self._moves[partition]
            self._state.log.info(
                "replica moved to another log directory", partition=partition.log.name, directory=move.directory.path
            )


async def _result_of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)


def copy(log: Log, future: Log, max_bytes: int) -> int:
    """Copy one chunk to the future log, after a truncation if the two logs have diverged; return the number of bytes
    copied."""
    if future.log_end_offset < log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset)
    while future.log_end_offset > 0:
        last_epoch = future.leader_epochs.latest
        leader = EpochEnd(*log.end_offset_for_epoch(last_epoch))
        own = EpochEnd(*future.end_offset_for_epoch(leader.epoch))
        point = truncation_point(leader, own, future.log_end_offset, future.log_end_offset)
        if not future.truncate_to(min(point, log.log_end_offset)):
            break
    chunk = log.read(future.log_end_offset, max_bytes)
    if chunk is not None:
        future.append_as_follower(chunk.tobytes())
    future.advance_log_start_offset(min(log.log_start_offset, future.log_end_offset))
    return 0 if chunk is None else len(chunk)
