"""The broker under test as a cluster of one. Its process may crash at any operation of its disk, and restarts with the
files that the disk has kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.node import Node
from odradek_broker.replication.partition import Partition
from simulation.cluster import LOG_DIRS, RESTART_BACKOFF_S, SETTINGS, host_settings, pause_for
from simulation.crash_points import CrashingDisk
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.process import Process
from simulation.trace import Trace

HOST = "broker-0"
DIRECTORY = f"/{HOST}/{LOG_DIRS[0]}"
SINGLE_BROKER_SETTINGS = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.roll.ms": "400",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "900",
}


class SingleBroker:
    """A `Cluster` of one broker, which starts again after `kill`, `lose_power` and `stop`. `points` is the disk of its
    process, which wraps `disk`."""

    def __init__(
        self,
        *,
        settings: dict[str, str],
        environment: BrokerEnvironment,
        points: CrashingDisk,
        disk: MemoryDisk,
        network: MemoryNetwork,
        trace: Trace,
    ) -> None:
        self.ids: tuple[int, ...] = (0,)
        self.hosts = [HOST]
        self.log_dirs = 1
        self.processes = [Process("the process", (HOST,), environment.clock)]
        self.points = points
        self.crashes = 0
        """The number of crashes so far."""
        self._static = {**SETTINGS, **SINGLE_BROKER_SETTINGS, **settings, **host_settings(0, HOST, 1), "node.id": "0"}
        self._environment = environment
        self._disk = disk
        self._network = network
        self._trace = trace
        self._change_lock = asyncio.Lock()
        self._cluster: EmbeddedCluster | None = None

    @property
    def running(self) -> dict[int, Node]:
        return {} if self._cluster is None else self._cluster.nodes

    def in_sync(self, topic: str, index: int) -> dict[int, Partition]:
        node = self.running.get(0)
        partition = node.broker.partitions.get(topic, index) if node is not None else None
        return {} if partition is None or partition.error else {0: partition}

    def unsettled(self) -> str:
        return "" if self.running else "the broker does not run"

    async def start(self) -> None:
        """Try to start until it succeeds: a disk fault or a crash may prevent it."""
        async with self._change_lock:
            await self._start(lose_unsynced=False)

    async def _start(self, *, lose_unsynced: bool) -> None:
        while True:
            try:
                self._cluster = await self._run_in_process(
                    EmbeddedCluster.start([self._static], environment=self._environment)
                )
                return
            except Exception as error:
                self._trace.add(HOST, f"cannot start: {type(error).__name__}: {error}")
                if self.points.dead:
                    self._finish_crash(lose_unsynced=lose_unsynced)
                elif isinstance(error, OSError):
                    await asyncio.sleep(RESTART_BACKOFF_S)
                else:
                    raise

    async def crash_and_restart(self, *, lose_unsynced: bool) -> None:
        """Kill the process unless it has reached its crash point, and start it again. `lose_unsynced`: the disk may
        lose unsynced data."""
        await self.crash_process(lose_unsynced=lose_unsynced)
        await self.restart(lose_unsynced=lose_unsynced)

    async def crash_process(self, *, lose_unsynced: bool) -> None:
        """Kill the process unless it has reached its crash point."""
        async with self._change_lock:
            if not self.points.dead:
                self.points.end()
                self.drop_unsent()
            if self._cluster is not None:
                await self._run_in_process(self._cluster.kill())
                self._cluster = None
            self._finish_crash(lose_unsynced=lose_unsynced)

    async def restart(self, *, lose_unsynced: bool) -> None:
        """Start the process; `lose_unsynced` also holds for crashes during the start."""
        async with self._change_lock:
            self._trace.add(HOST, "starts")
            await self._start(lose_unsynced=lose_unsynced)

    def drop_unsent(self) -> None:
        """Drop all bytes that the dead process would still send."""
        self._network.power_off(HOST)

    def _finish_crash(self, *, lose_unsynced: bool) -> None:
        self.crashes += 1
        lost = self._disk.lose_power(HOST) if lose_unsynced else 0
        self._trace.add(HOST, f"has crashed; {lost} files lost something")
        self.points.revive()
        self._network.power_on(HOST)

    def allow_disk_failure(self, broker: int) -> AbstractContextManager[bool]:
        return nullcontext(True)

    async def restart_all(self, *, orderly: bool) -> None:
        """Stop and start the broker; it may reach a crash point while it stops."""
        if not orderly:
            await self.crash_and_restart(lose_unsynced=False)
            return
        async with self._change_lock:
            self._trace.add(HOST, "is stopped and starts again")
            if self._cluster is not None:
                await self._stop(self._cluster)
            self._cluster = None
            if not self.points.dead:
                await self._start(lose_unsynced=False)

    async def kill(self, broker: int) -> bool:
        await self.crash_and_restart(lose_unsynced=False)
        return True

    async def lose_power(self, broker: int) -> bool:
        await self.crash_and_restart(lose_unsynced=True)
        return True

    async def stop(self, broker: int) -> bool:
        await self.restart_all(orderly=True)
        return True

    async def start_broker(self, broker: int) -> None:
        if self._cluster is None:
            await self.restart(lose_unsynced=False)

    async def pause(self, process: Process, seconds: float) -> None:
        await pause_for(process, seconds)

    async def stop_all(self) -> None:
        if self._cluster is not None:
            await self._stop(self._cluster)

    async def _stop(self, cluster: EmbeddedCluster) -> None:
        """Stop the broker. Its logs close one after the other, because the order of threads would not be repeatable."""
        with patch("concurrent.futures.ThreadPoolExecutor", _SequentialExecutor):
            await self._run_in_process(cluster.stop(grace_ms=1000))

    async def _run_in_process(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.processes[0].run(work)


class _SequentialExecutor(ThreadPoolExecutor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
