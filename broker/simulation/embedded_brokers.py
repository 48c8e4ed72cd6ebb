"""The brokers under test as an embedded cluster: one process, one host per broker, network and disks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.node import Node
from odradek_broker.replication.partition import Partition
from odradek_log.log_errors import LogDirectoryError
from odradek_wire.errors import ErrorCode
from simulation.cluster import RESTART_BACKOFF_S, SETTINGS, host_settings, pause_for
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.process import Process
from simulation.trace import Trace


class EmbeddedBrokers:
    """Brokers 0 to `count` - 1 on the hosts `broker-0` and so on."""

    def __init__(
        self,
        *,
        count: int,
        log_dirs: int,
        settings: dict[str, str],
        environment: BrokerEnvironment,
        disk: MemoryDisk,
        network: MemoryNetwork,
        trace: Trace,
    ) -> None:
        self.ids = tuple(range(count))
        self.hosts = [f"broker-{broker}" for broker in self.ids]
        self.log_dirs = log_dirs
        self.processes = [Process("the process", tuple(self.hosts), environment.clock)]
        self._settings = {**SETTINGS, "metadata.log.dir": "/controller/metadata", **settings}
        self._environment = environment
        self._disk = disk
        self._network = network
        self._trace = trace
        self._change_lock = asyncio.Lock()
        self._cluster: EmbeddedCluster

    async def start(self) -> None:
        statics = [self._static(broker) for broker in self.ids]

        async def start() -> None:
            self._cluster = await EmbeddedCluster.start(statics, environment=self._environment)

        await self._start_until_successful(start)

    async def _start_until_successful(self, start: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Repeat a start that fails, because a disk fault may prevent it."""
        while True:
            try:
                return await self._run_in_process(start())
            except (OSError, ValueError, LogDirectoryError) as error:
                self._trace.add("all", f"cannot start: {type(error).__name__}: {error}")
                await asyncio.sleep(RESTART_BACKOFF_S)

    @property
    def running(self) -> dict[int, Node]:
        return self._cluster.nodes

    def in_sync(self, topic: str, index: int) -> dict[int, Partition]:
        registration = self._cluster.controller.image.partition(topic, index)
        found = {}
        for broker in registration.isr if registration is not None else ():
            node = self.running.get(broker)
            partition = node.broker.partitions.get(topic, index) if node is not None else None
            if partition is not None and partition.error != ErrorCode.KAFKA_STORAGE_ERROR:
                found[broker] = partition
        return found

    def unsettled(self) -> str:
        for topic in self._cluster.controller.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if set(partition.isr) != set(partition.replicas) or partition.reassigning:
                    return f"{topic.name}-{index}: {partition}"
        return ""

    async def kill(self, broker: int) -> bool:
        async with self._change_lock:
            if broker not in self.running:
                return False
            self._trace.add(self.hosts[broker], "is killed")
            await self._run_in_process(self._cluster.kill_broker(broker))
            return True

    async def lose_power(self, broker: int) -> bool:
        async with self._change_lock:
            if broker not in self.running or not self._may_lose_power(broker):
                return False
            host = self.hosts[broker]
            self._trace.add(host, "loses power")
            self._network.power_off(host)
            await self._run_in_process(self._cluster.kill_broker(broker))
            # It may have become the only replica in an ISR meanwhile.
            lost = self._disk.lose_power(host) if self._may_lose_power(broker) else 0
            self._trace.add(host, f"{lost} files lost something")
            return True

    def _may_lose_power(self, broker: int) -> bool:
        return all(
            self.in_sync(topic.name, index).keys() - {broker}
            for topic in self._cluster.controller.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if broker in partition.replicas
        )

    async def stop(self, broker: int) -> bool:
        async with self._change_lock:
            if broker not in self.running:
                return False
            self._trace.add(self.hosts[broker], "is stopped")
            await self._run_in_process(self._cluster.stop_broker(broker, grace_ms=1000))
            return True

    async def start_broker(self, broker: int) -> None:
        async with self._change_lock:
            if broker not in self.running:
                self._trace.add(self.hosts[broker], "starts")
                self._network.power_on(self.hosts[broker])
                await self._start_until_successful(lambda: self._cluster.start_broker(self._static(broker)))

    def allow_disk_failure(self, broker: int) -> AbstractContextManager[bool]:
        return nullcontext(True)

    async def restart_all(self, *, orderly: bool) -> None:
        async with self._change_lock:
            self._trace.add("all", f"are {'stopped' if orderly else 'killed'} and start again")
            await self._run_in_process(self._cluster.stop(grace_ms=1000) if orderly else self._cluster.kill())
            for host in self.hosts:
                self._network.power_on(host)
            await self.start()

    async def lose_power_everywhere(self) -> None:
        """Cut the power of all brokers and the controller, and start them again."""
        async with self._change_lock:
            self._trace.add("all", "lose power")
            for host in self.hosts:
                self._network.power_off(host)
            await self._run_in_process(self._cluster.kill())
            for host in (*self.hosts, "controller"):
                self._disk.lose_power(host)
            for host in self.hosts:
                self._network.power_on(host)
            await self.start()

    async def stop_all(self) -> None:
        await self._run_in_process(self._cluster.stop(grace_ms=1000))

    async def _run_in_process(self, work: Coroutine[Any, Any, object]) -> None:
        await self.processes[0].run(work)

    async def pause(self, process: Process, seconds: float) -> None:
        async with self._change_lock:
            self._trace.add("all", f"are paused for {seconds:.1f} s")
            await pause_for(process, seconds)
            self._trace.add("all", "resume")

    def _static(self, broker: int) -> dict[str, str]:
        return {**self._settings, **host_settings(broker, self.hosts[broker], self.log_dirs), "node.id": str(broker)}
