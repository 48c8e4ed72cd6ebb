"""The brokers under test over ZooKeeper: one process per broker and host, with ZooKeeper in memory.

Starts and ends the brokers and their sessions. Each broker is a `BrokerProcess`, as `odradek up --zookeeper`
starts it, with its own clock. The checks see all requests between brokers and all transactions of ZooKeeper.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odradek_broker.clock import Clock
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.node import Node
from odradek_broker.replication.partition import Partition
from odradek_broker.zookeeper.broker_process import BrokerProcess
from odradek_controller.controller import Controller
from odradek_controller.image import ClusterImage
from odradek_controller.zookeeper.client import Op, OpResult, ZooKeeper, ZooKeeperError
from odradek_log.log_errors import LogDirectoryError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek_wire.messages.stop_replica import StopReplicaRequest
from odradek_wire.messages.update_metadata import UpdateMetadataRequest
from simulation.cluster import RESTART_BACKOFF_S, SETTINGS, host_settings, pause_for
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.process import Process, ProcessTimers
from simulation.trace import Trace, TraceLog
from simulation.virtual_loop import VirtualLoop
from simulation.zookeeper_checks import ZooKeeperChecks
from zookeeper_double.server import ZooKeeperClientDouble, ZooKeeperServerDouble

SESSION_MS = 6_000


class WatchedZooKeeper(ZooKeeperServerDouble):
    """Reports every transaction to the checks. `slow_ms` adds latency to each message."""

    def __init__(self, checks: ZooKeeperChecks, chance: random.Random) -> None:
        super().__init__(ProcessTimers(None), latency_ms=self._message_ms)
        self._checks = checks
        self._chance = chance
        self._unanswered: list[asyncio.Future[Any]] = []
        self.slow_ms = 0

    def _message_ms(self) -> int:
        return self.slow_ms + (self._chance.randint(1, 20) if self._chance.random() < 0.1 else 0)

    def commit(self, connection: Any, ops: Sequence[Op]) -> list[OpResult]:
        results = super().commit(connection, ops)
        self._checks.committed(connection.session.id, ops)
        return results

    def crash(self, client: ZooKeeperClientDouble) -> None:
        # Keep the futures of unanswered requests: asyncio would report their destruction.
        self._unanswered += client.pending
        super().crash(client)


class ZooKeeperBrokers:
    """Brokers 0 to `count` - 1."""

    def __init__(
        self,
        *,
        count: int,
        log_dirs: int,
        chance: random.Random,
        unexpected: Callable[[str], None],
        checks: ZooKeeperChecks,
        disk: MemoryDisk,
        network: MemoryNetwork,
        trace: Trace,
        loop: VirtualLoop,
    ) -> None:
        self.ids = tuple(range(count))
        self.hosts = [f"broker-{broker}" for broker in self.ids]
        self.log_dirs = log_dirs
        self.processes = [Process(host, (host,), Clock(loop.wall_ns, loop.monotonic_ns)) for host in self.hosts]
        self.zookeeper = WatchedZooKeeper(checks, random.Random(chance.getrandbits(64)))
        self.sessions: dict[int, ZooKeeperClientDouble] = {}
        """The ZooKeeper sessions of running and starting processes."""
        self._chance = chance
        self._unexpected = unexpected
        self._checks = checks
        self._disk = disk
        self._network = network
        self._trace = trace
        self._started: dict[int, BrokerProcess] = {}
        self._end_watchers: dict[int, asyncio.Task[None]] = {}
        self._changing = [asyncio.Lock() for _ in self.ids]
        self._recovering: int | None = None
        self._at_risk: Counter[int] = Counter()
        self._broker_type = watched_broker_process(checks)

    async def start(self) -> None:
        await asyncio.gather(*(self.start_broker(broker) for broker in self.ids))

    @property
    def running(self) -> dict[int, Node]:
        return {broker: process.node for broker, process in sorted(self._started.items())}

    @property
    def controller(self) -> Controller | None:
        """The controller with the highest epoch among the brokers that consider themselves the controller."""
        found = [process.role.controller for process in self._started.values() if process.role.controller is not None]
        return max(found, key=lambda each: each.image.epoch, default=None)

    @property
    def controller_id(self) -> int | None:
        controller = self.controller
        return next((id for id, each in self._started.items() if each.role.controller is controller), None)

    def in_sync(self, topic: str, index: int) -> dict[int, Partition]:
        """Return the replicas in the stored ISR that know its leader epoch. A restarted broker may have lost records,
        and knows the epoch only after the controller has noticed its restart."""
        found: dict[int, Partition] = {}
        state = self._checks.state(topic, index)
        for broker in state.isr if state is not None else ():
            process = self._started.get(broker)
            partition = process.node.broker.partitions.get(topic, index) if process is not None else None
            if state is None or partition is None or partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
                continue
            if partition.leader_epoch == state.leader_epoch:
                found[broker] = partition
        return found

    def unsettled(self) -> str:
        controllers = [broker for broker, each in self._started.items() if each.role.controller is not None]
        controller = self.controller
        if len(controllers) != 1 or controller is None:
            return f"brokers {controllers} consider themselves the controller"
        image = controller.image
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if set(partition.isr) != set(partition.replicas) or partition.reassigning:
                    return f"{topic.name}-{index}: {partition}"
                stored = self._checks.state(topic.name, index)
                known = (partition.leader, partition.leader_epoch, partition.isr)
                if stored is None or (stored.leader, stored.leader_epoch, stored.isr) != known:
                    return f"{topic.name}-{index}: the controller knows {known}, ZooKeeper has {stored}"
        for broker, process in self._started.items():
            if difference := _different(process.adapter.image, image):
                return f"broker {broker} has other metadata: {difference}"
        return ""

    # -- starts and stops of brokers ----------------------------------------------------------------------------------

    async def kill(self, broker: int) -> bool:
        async with self._changing[broker]:
            if broker not in self._started or not self.may_fail(broker):
                return False
            self._trace.add(self.hosts[broker], "is killed")
            await self._kill(broker)
            return True

    async def lose_power(self, broker: int) -> bool:
        async with self._changing[broker]:
            if broker not in self._started or not self._may_lose_power(broker):
                return False
            host = self.hosts[broker]
            self._trace.add(host, "loses power")
            self._network.power_off(host)
            self._recovering = broker
            await self._kill(broker)
            self._trace.add(host, f"{self._disk.lose_power(host)} files lost something")
            return True

    def _may_lose_power(self, broker: int) -> bool:
        """Return whether the broker may lose unsynced data: other replicas must have it, and the controller must be
        able to remove the broker from every ISR before it is back. Therefore only one broker loses data at a time."""
        controller = self.controller
        known = {} if controller is None else controller.image.brokers
        leads = [each.leader for each in self._started[broker].node.broker.partitions if each.leader is not None]
        return (
            self.may_fail(broker)
            and all(known[id].epoch == each.adapter.broker_epoch for id, each in self._started.items() if id in known)
            and known.keys() >= self._started.keys()
            and not any(count for other, count in self._at_risk.items() if other != broker)
            and all(leader.proposed_isr is None for leader in leads)
            and all(self.in_sync(*partition).keys() - {broker} for partition in self._checks.in_sync_on(broker))
        )

    def may_fail(self, broker: int) -> bool:
        """Return whether the broker may fail: not while another broker that has lost data is still in an ISR."""
        recovering = self._recovering
        if recovering is not None and all(
            recovering in self.in_sync(*partition) for partition in self._checks.in_sync_on(recovering)
        ):
            recovering = self._recovering = None
        return recovering in (None, broker)

    @contextmanager
    def at_risk(self, broker: int) -> Iterator[None]:
        """Mark the broker as one that may lose its session within the block."""
        self._at_risk[broker] += 1
        try:
            yield
        finally:
            self._at_risk[broker] -= 1

    async def _kill(self, broker: int) -> None:
        process = self._started[broker]
        if process.node.has_online_directory:
            self._end_watchers[broker].cancel()
            del self._started[broker]
            self.zookeeper.crash(self.sessions.pop(broker))
            await self.processes[broker].run(process.kill())
        else:  # the process ends by itself
            await self._end_watchers[broker]

    async def stop(self, broker: int) -> bool:
        async with self._changing[broker]:
            if broker not in self._started or not self.may_fail(broker):
                return False
            self._trace.add(self.hosts[broker], "is stopped")
            process = self._started[broker]
            await self.processes[broker].run(process.stop(grace_ms=1000))
            self._end_watchers[broker].cancel()
            del self._started[broker], self.sessions[broker]
            return True

    async def start_broker(self, broker: int) -> None:
        """Repeat a start that fails, for instance while ZooKeeper is down."""
        async with self._changing[broker]:
            while broker not in self._started:
                self._trace.add(self.hosts[broker], "starts")
                self._network.power_on(self.hosts[broker])
                try:
                    await self.processes[broker].run(self._start_process(broker))
                except (ValueError, OSError, LogDirectoryError, ZooKeeperError) as error:
                    self._trace.add(self.hosts[broker], f"cannot start: {type(error).__name__}: {error}")
                    self.zookeeper.crash(self.sessions.pop(broker))
                    await asyncio.sleep(RESTART_BACKOFF_S)

    async def _start_process(self, broker: int) -> None:
        process = self.processes[broker]
        session = await self.zookeeper.connect(session_timeout_ms=SESSION_MS, timers=ProcessTimers(process))
        self.sessions[broker] = session

        def unexpected(event: str) -> None:
            if self.sessions.get(broker) is session:  # events of a process that was killed do not count
                self._unexpected(event)

        log = TraceLog(self._trace, unexpected)
        environment = BrokerEnvironment(log, process.clock, self._disk, self._chance.randbytes)
        started = self._started[broker] = await self._broker_type.start(self._static(broker), session, environment)
        self._end_watchers[broker] = asyncio.get_running_loop().create_task(self._when_ended(broker, started))

    async def _when_ended(self, broker: int, process: BrokerProcess) -> None:
        """Handle the end of a process that has lost all log directories."""
        await process.ended.wait()
        if self._started.get(broker) is process:
            del self._started[broker]
            self.zookeeper.crash(self.sessions.pop(broker))

    async def pause(self, process: Process, seconds: float) -> None:
        broker = self.processes.index(process)
        async with self._changing[broker]:
            session = self.sessions.get(broker)
            if session is not None and self.may_fail(broker):
                self._trace.add(process.name, f"is paused for {seconds:.1f} s")
                self.zookeeper.freeze(session, True)
                with self.at_risk(broker):
                    await pause_for(process, seconds)
                self.zookeeper.freeze(session, False)
                self._trace.add(process.name, "resumes")

    @contextmanager
    def allow_disk_failure(self, broker: int) -> Iterator[bool]:
        if self.may_fail(broker):
            with self.at_risk(broker):
                yield True
        else:
            yield False

    async def restart_all(self, *, orderly: bool) -> None:
        self._trace.add("all", f"are {'stopped' if orderly else 'killed'} and start again")
        end = self.stop if orderly else self.kill
        await asyncio.gather(*(end(broker) for broker in self.ids))
        await asyncio.gather(*(self.start_broker(broker) for broker in self.ids))

    async def stop_all(self) -> None:
        for broker in self.ids:
            await self.stop(broker)

    def _static(self, broker: int) -> dict[str, str]:
        host = self.hosts[broker]
        return {
            **SETTINGS,
            **host_settings(broker, host, self.log_dirs),
            "broker.id": str(broker),
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "controller.socket.timeout.ms": "4000",
            "controlled.shutdown.retry.backoff.ms": "500",
        }


def watched_broker_process(checks: ZooKeeperChecks) -> type[BrokerProcess]:
    class WatchedBroker(BrokerProcess):
        """Reports the requests of other brokers that it accepts to the checks."""

        def __init__(self, node: Node, zk: ZooKeeper, environment: BrokerEnvironment) -> None:
            super().__init__(node, zk, environment)
            handle = self.control_requests.handle

            async def handled(request: Any) -> Any:
                response = await handle(request)
                if not response.error_code:
                    self._check(request)
                return response

            self.control_requests.handle = handled  # type: ignore[method-assign]  # the checks see each request

        def _check(self, request: Any) -> None:
            controller = self.channel.local
            name = type(request).__name__
            if isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest):
                sender = (request.controller_id, request.controller_epoch, request.broker_epoch)
                checks.controller_request_accepted(self.node.id, self.adapter.broker_epoch, name, *sender)
            elif controller is not None:
                known = controller.image.brokers[request.broker_id].epoch
                checks.broker_request_accepted(name, request.broker_id, request.broker_epoch, known)

    return WatchedBroker


def _different(known: ClusterImage, image: ClusterImage) -> str:
    """Describe the first difference between two images that clients could see."""
    for name in sorted(known.topics.keys() | image.topics.keys()):
        topics = known.topics.get(name), image.topics.get(name)
        if topics[0] is None or topics[1] is None or topics[0].id != topics[1].id:
            return f"topic {name}: {topics}"
        for index, (one, other) in enumerate(zip(topics[0].partitions, topics[1].partitions, strict=False)):
            facts = [(each.leader, each.leader_epoch, each.isr, each.replicas) for each in (one, other)]
            if facts[0] != facts[1]:
                return f"{name}-{index}: {facts[0]}, not {facts[1]}"
        if len(topics[0].partitions) != len(topics[1].partitions):
            return f"{name} has {len(topics[0].partitions)} partitions, not {len(topics[1].partitions)}"
    live = [sorted(id for id, each in image.brokers.items() if not each.fenced) for image in (known, image)]
    return "" if live[0] == live[1] else f"brokers {live[0]}, not {live[1]}"
