"""The broker under test is alone: one process that is the whole cluster, whose end may come at any operation of its
disk. When it begins again it has what the disk kept.
"""

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
from simulation.cluster import AGAIN_S, LOG_DIRS, SETTINGS, host_settings, stop_for
from simulation.crash_points import CrashingDisk
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.process import Process
from simulation.trace import Trace

HOST = "broker-0"
DIRECTORY = f"/{HOST}/{LOG_DIRS[0]}"
OF_ONE = {
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
    """A `Cluster` of one. `points` is the disk of the process, before `disk`."""

    def __init__(
        self,
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
        """How often it ended as no process should."""
        self._static = {**SETTINGS, **OF_ONE, **settings, **host_settings(0, HOST, 1), "node.id": "0"}
        self._environment = environment
        self._disk = disk
        self._network = network
        self._trace = trace
        self._one_change = asyncio.Lock()
        self._cluster: EmbeddedCluster | None = None

    @property
    def running(self) -> dict[int, Node]:
        return {} if self._cluster is None else self._cluster.nodes

    @property
    def has_ended(self) -> bool:
        """By itself, having lost its disk."""
        return self._cluster is None or self._cluster.ended.is_set()

    def in_sync(self, topic: str, index: int) -> dict[int, Partition]:
        node = self.running.get(0)
        partition = node.broker.partitions.get(topic, index) if node is not None else None
        return {} if partition is None or partition.error else {0: partition}

    def unsettled(self) -> str:
        return "" if self.running else "it does not run"

    async def start(self) -> None:
        """As often as it takes: the disk may refuse, or end the process again."""
        async with self._one_change:
            await self._start(forget=False)

    async def _start(self, *, forget: bool) -> None:
        while True:
            try:
                self._cluster = await self._do(EmbeddedCluster.start([self._static], environment=self._environment))
                return
            except Exception as error:
                self._trace.add(HOST, f"cannot start: {type(error).__name__}: {error}")
                if self.points.dead:
                    self._begin_anew(forget=forget)
                elif isinstance(error, OSError):
                    await asyncio.sleep(AGAIN_S)
                else:
                    raise

    async def crash(self, *, forget: bool) -> None:
        """It has ended by a crash point, or ends here, as by kill -9; and begins again. `forget`: the disk keeps
        nothing for certain but what was synced."""
        await self.end_by_crash(forget=forget)
        await self.begin_again(forget=forget)

    async def end_by_crash(self, *, forget: bool) -> None:
        async with self._one_change:
            if not self.points.dead:
                self.points.end()
                self.fall_silent()
            if self._cluster is not None:
                await self._do(self._cluster.kill())
                self._cluster = None
            self._begin_anew(forget=forget)

    async def begin_again(self, *, forget: bool) -> None:
        """`forget`: so does the disk if it ends the process while it starts."""
        async with self._one_change:
            self._trace.add(HOST, "starts")
            await self._start(forget=forget)

    def fall_silent(self) -> None:
        """The process is dead: nothing that it would still say is heard."""
        self._network.power_off(HOST)

    def _begin_anew(self, *, forget: bool) -> None:
        self.crashes += 1
        lost = self._disk.lose_power(HOST) if forget else 0
        self._trace.add(HOST, f"has crashed; {lost} files lost something")
        self.points.revive()
        self._network.power_on(HOST)

    def disk_trouble(self, broker: int) -> AbstractContextManager[bool]:
        return nullcontext(True)

    async def restart_all(self, *, orderly: bool) -> None:
        """A crash point may be met while it stops."""
        if not orderly:
            await self.crash(forget=False)
            return
        async with self._one_change:
            self._trace.add(HOST, "is stopped and starts again")
            if self._cluster is not None:
                await self._stop(self._cluster)
            self._cluster = None
            if not self.points.dead:
                await self._start(forget=False)

    async def kill(self, broker: int) -> bool:
        await self.crash(forget=False)
        return True

    async def lose_power(self, broker: int) -> bool:
        await self.crash(forget=True)
        return True

    async def stop(self, broker: int) -> bool:
        await self.restart_all(orderly=True)
        return True

    async def begin(self, broker: int) -> None:
        if self._cluster is None:
            await self.begin_again(forget=False)

    async def stand_still(self, process: Process, seconds: float) -> None:
        await stop_for(process, seconds)

    async def end(self) -> None:
        if self._cluster is not None:
            await self._stop(self._cluster)

    async def _stop(self, cluster: EmbeddedCluster) -> None:
        """With its logs closed one after the other, or else threads would decide what comes first."""
        with patch("concurrent.futures.ThreadPoolExecutor", _OneAfterTheOther):
            await self._do(cluster.stop(grace_ms=1000))

    async def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.processes[0].do(work)


class _OneAfterTheOther(ThreadPoolExecutor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
