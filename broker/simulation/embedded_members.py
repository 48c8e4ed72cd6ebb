"""The brokers under test: an embedded cluster, one host for each broker, everything around them in memory.

Owns how brokers begin and end. A cluster of another kind offers the same methods.
"""

from __future__ import annotations

import asyncio

from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.node import Node
from odradek_broker.surroundings import Surroundings
from odradek_controller.image import ClusterImage
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.trace import Trace

SETTINGS = {
    "metadata.log.dir": "/controller/metadata",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "4000",
    "replica.fetch.backoff.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.retention.check.interval.ms": "10000",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "leader.imbalance.check.interval.seconds": "20",
}


class EmbeddedMembers:
    """Brokers 0 to `count` - 1 on the hosts `broker-0` and so on."""

    def __init__(
        self,
        count: int,
        settings: dict[str, str],
        surroundings: Surroundings,
        disk: MemoryDisk,
        network: MemoryNetwork,
        trace: Trace,
    ) -> None:
        self.ids = tuple(range(count))
        self.hosts = [f"broker-{broker}" for broker in self.ids]
        self._settings = SETTINGS | settings
        self._surroundings = surroundings
        self._disk = disk
        self._network = network
        self._trace = trace
        self._one_change = asyncio.Lock()
        self._cluster: EmbeddedCluster

    async def start(self) -> None:
        statics = [self._static(broker) for broker in self.ids]
        self._cluster = await EmbeddedCluster.start(statics, surroundings=self._surroundings)

    @property
    def running(self) -> dict[int, Node]:
        return self._cluster.nodes

    @property
    def image(self) -> ClusterImage:
        return self._cluster.controller.image

    async def kill(self, broker: int) -> bool:
        """As kill -9: what was written is there. False if it did not run."""
        async with self._one_change:
            if broker not in self.running:
                return False
            self._trace.add(self.hosts[broker], "is killed")
            await self._cluster.kill_broker(broker)
            return True

    async def lose_power(self, broker: int) -> bool:
        """What was not synced is gone, and nobody hears of it. False if it does not run, or if it is the only one in
        sync somewhere: nothing could save that."""
        async with self._one_change:
            if broker not in self.running or not self._may_lose(broker):
                return False
            host = self.hosts[broker]
            self._trace.add(host, "loses power")
            self._network.power_off(host)
            await self._cluster.kill_broker(broker)
            self._trace.add(host, f"{self._disk.lose_power(host)} files lost something")
            return True

    def _may_lose(self, broker: int) -> bool:
        return all(
            any(other != broker and other in self.running for other in partition.isr)
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if broker in partition.replicas
        )

    async def stop(self, broker: int) -> bool:
        """In an orderly way. False if it does not run."""
        async with self._one_change:
            if broker not in self.running:
                return False
            self._trace.add(self.hosts[broker], "is stopped")
            await self._cluster.stop_broker(broker, grace_ms=1000)
            return True

    async def begin(self, broker: int) -> None:
        """Start it again, if it does not run."""
        async with self._one_change:
            if broker not in self.running:
                self._trace.add(self.hosts[broker], "starts")
                self._network.power_on(self.hosts[broker])
                await self._cluster.start_broker(self._static(broker))

    async def restart_all(self, *, orderly: bool) -> None:
        """The whole process is stopped or killed and begins again, with all brokers."""
        async with self._one_change:
            self._trace.add("all", f"are {'stopped' if orderly else 'killed'} and start again")
            await (self._cluster.stop(grace_ms=1000) if orderly else self._cluster.kill())
            for host in self.hosts:
                self._network.power_on(host)
            await self.start()

    async def end(self) -> None:
        await self._cluster.stop(grace_ms=1000)

    def _static(self, broker: int) -> dict[str, str]:
        host = self.hosts[broker]
        return self._settings | {
            "node.id": str(broker),
            "broker.rack": f"rack-{broker}",
            "log.dirs": f"/{host}/data",
            "listeners": f"PLAINTEXT://{host}:9092",
        }
