"""Three brokers over ZooKeeper in memory: a `BrokerProcess` each, all in one process and on one clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
from broker.tests.manual_clock import ManualClock

from odradek_broker.environment import BrokerEnvironment
from odradek_broker.timers import Timers
from odradek_broker.zookeeper.broker_process import BrokerProcess
from odradek_controller.controller import Controller
from odradek_controller.image import PartitionRegistration
from odradek_log.disk import Disk
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.fetch import FetchRequest
from zookeeper_double.server import ZooKeeperClientDouble, ZooKeeperServerDouble

TIMEOUT_S = 20
SESSION_MS = 6_000
Connect = Callable[..., Awaitable[Any]]


class ThreeBrokers:
    """Brokers 1 to 3 over ZooKeeper in memory. The clock runs only while a test waits with `passing` or `until`."""

    def __init__(self, path: Path, connect: Connect) -> None:
        self.path = path
        self.clock = ManualClock(int(time.time() * 1000))
        self.log = structlog.get_logger("test")
        self.timers = Timers(self.clock, asyncio.get_running_loop(), self.log)
        self.zookeeper = ZooKeeperServerDouble(self.timers)
        self.processes: dict[int, BrokerProcess] = {}
        self.sessions: dict[int, ZooKeeperClientDouble] = {}
        self.ports: dict[int, int] = {}
        self._connect = connect

    async def start(
        self, broker: int, data: str | None = None, disk: Disk | None = None, **settings: str
    ) -> BrokerProcess:
        static = {
            "broker.id": str(broker),
            "log.dirs": str(self.path / (data or f"broker-{broker}")),
            "listeners": f"PLAINTEXT://127.0.0.1:{0 if data else self.ports.get(broker, 0)}",
            "odradek.sync": "false",
            "replica.lag.time.max.ms": "30000",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "offsets.topic.num.partitions": "3",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        session = await self.zookeeper.connect(chroot="/kafka", session_timeout_ms=SESSION_MS)
        environment = BrokerEnvironment.of(static, log=self.log, clock=self.clock, disk=disk)
        process = await self.passing(BrokerProcess.start(static, session, environment))
        self.processes[broker], self.sessions[broker] = process, session
        self.ports[broker] = process.node.port
        return process

    async def kill(self, broker: int) -> None:
        self.zookeeper.crash(self.sessions.pop(broker))
        await self.processes.pop(broker).kill()

    async def stop(self, broker: int) -> None:
        del self.sessions[broker]
        await self.passing(self.processes.pop(broker).stop(grace_ms=100))

    async def end(self) -> None:
        for broker in list(self.processes):
            await self.kill(broker)
        self.timers.close()

    async def client(self, broker: int) -> Any:
        return await self._connect(self.processes[broker].node)

    @property
    def controller(self) -> Controller | None:
        return next((found for each in self.processes.values() if (found := each.channel.local) is not None), None)

    @property
    def controller_id(self) -> int:
        return next(each.node.id for each in self.processes.values() if each.channel.local is not None)

    def partition_on(self, broker: int, index: int = 0) -> PartitionRegistration | None:
        return self.processes[broker].adapter.image.partition("t", index)

    async def passing(self, work: Any) -> Any:
        """Let time pass until the work is done; return its result."""
        task = asyncio.ensure_future(work)
        await self.until(task.done)
        return task.result()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.0005)
                self.clock.advance_timeouts(10)

    async def until_led(self, leader: int | None = None, isr: set[int] | None = None, index: int = 0) -> None:
        def agreed() -> bool:
            found = [self.partition_on(broker, index) for broker in self.processes]
            return (
                all(
                    each is not None
                    and each.leader in self.processes
                    and (leader is None or each.leader == leader)
                    and (isr is None or set(each.isr) == isr)
                    for each in found
                )
                and self.processes[found[0].leader].node.broker.partitions.get("t", index) is not None
            )  # type: ignore[union-attr]

        await self.until(agreed)

    async def create(self, replicas: list[int], partitions: int = 1, **configs: str) -> None:
        await self.until(lambda: self.controller is not None)
        await self.until(lambda: len(self.processes[self.controller_id].adapter.image.brokers) >= len(self.processes))
        client = await self.client(self.controller_id)
        assignments = [CreateTopicsRequest.CreatableReplicaAssignment(index, replicas) for index in range(partitions)]
        entries = [
            CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic("t", -1, -1, assignments, entries)
        response = await self.passing(client.ask(CreateTopicsRequest([topic]), 7))
        assert response.topics[0].error_code == 0, response.topics[0]
        for index in range(partitions):
            await self.until_led(index=index)

    async def move(self, replicas: list[int]) -> None:
        """Reassign partition 0 of t to these brokers."""
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(0, replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic("t", [partition])
        client = await self.client(self.controller_id)
        response = await self.passing(client.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 0))
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE

    async def produce(self, leader: int, records: bytes, index: int = 0) -> int:
        client = await self.client(leader)
        response = await self.passing(client.produce("t", records, partition=index))
        return int(response.error_code)

    async def read(self, leader: int) -> bytes:
        client = await self.client(leader)
        wanted = FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])]
        )
        response = await self.passing(client.ask(request, 12))
        return bytes(response.responses[0].partitions[0].records)
