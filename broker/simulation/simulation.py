"""One run from a seed: a cluster and clients under faults, then a comparison of all logs once the faults have ended.

`simulate(seed)` raises a `Failure` with the trace when a rule is broken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, assert_never

from odradek_broker.clock import Clock
from odradek_broker.config import EMULATE, SYNC
from odradek_broker.environment import BrokerEnvironment
from odradek_log.disk import Disk
from odradek_log.log import Log
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records
from simulation.administrator import Administrator
from simulation.checks import Checks, Violation
from simulation.client import Client, UnreachableError
from simulation.cluster import Cluster
from simulation.committed_reader import CommittedReader
from simulation.consumer_group import ConsumerGroup
from simulation.crash_points import CrashingDisk
from simulation.crashes import Crashes
from simulation.embedded_brokers import EmbeddedBrokers
from simulation.faults import Faults
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import MemoryNetwork
from simulation.producers import Producer
from simulation.readers import LatestOffsetReader, Reader, SessionReader
from simulation.single_broker import SingleBroker
from simulation.trace import Trace, TraceLog
from simulation.virtual_loop import NoProgressError, VirtualLoop
from simulation.workloads import KEYED, OPTIONAL_WORKLOADS, Bank, Keys, Numbers, OptionalWorkload, Workload
from simulation.zookeeper_brokers import ZooKeeperBrokers
from simulation.zookeeper_checks import ZooKeeperChecks
from simulation.zookeeper_faults import ZooKeeperFaults

TOPIC = "events"
PARTITIONS = 3
OPTIONAL_WORKLOAD_RATE = 0.25
"""The share of runs with each of the optional workloads."""
OBSERVATION_INTERVAL_S = 0.05
SETTLED_WITHIN_S = 90.0
FAULTS_END_WITHIN_S = 180.0


ClusterKind = Literal["embedded", "zookeeper", "single"]
KINDS: tuple[ClusterKind, ...] = ("embedded", "zookeeper", "single")
Script = Callable[["Simulation"], Awaitable[None]]
"""Replaces the random faults; when it returns, all brokers run and reach each other."""


class Failure(AssertionError):
    """A rule is broken under this seed."""

    def __init__(self, seed: int, kind: ClusterKind, why: str, trace: Trace) -> None:
        super().__init__(
            f"{why}\n\nTo repeat it: .venv/bin/python -m simulation {kind} --seed {seed}\n"
            f"The last events (virtual seconds, host, event):\n{trace.text(120)}"
        )
        self.why = why


def simulate(
    seed: int,
    kind: ClusterKind = "embedded",
    *,
    duration_s: float = 30.0,
    settled_within_s: float = SETTLED_WITHIN_S,
    script: Script | None = None,
    durable: bool | None = None,
    workloads: Collection[OptionalWorkload] | None = None,
) -> Simulation:
    """Run one seed: faults for `duration_s` virtual seconds, or the script in place of them, then the final checks.

    `durable`: whether acknowledgements wait for the disk; `workloads`: the optional workloads. If they are None, the
    seed decides. Raises Failure.
    """
    simulation = Simulation(
        seed=seed,
        kind=kind,
        duration_s=duration_s,
        settled_within_s=settled_within_s,
        script=script,
        durable=durable,
        workloads=workloads,
    )
    simulation.run()
    return simulation


class Simulation:
    """One run. Two runs with the same events have the same `trace.digest`."""

    def __init__(
        self,
        *,
        seed: int,
        kind: ClusterKind,
        duration_s: float,
        settled_within_s: float = SETTLED_WITHIN_S,
        script: Script | None = None,
        durable: bool | None = None,
        workloads: Collection[OptionalWorkload] | None = None,
    ) -> None:
        self.seed = seed
        self.kind = kind
        self._script = script
        self._duration_s = duration_s
        self._settled_within_s = settled_within_s
        self.trace = Trace()
        self._chance_of_seeds = random.Random(seed)
        self.network = MemoryNetwork(self._new_chance(), self.trace)
        self.disk = MemoryDisk(self._new_chance())
        self.loop = VirtualLoop(self.network, self._new_chance(), self.disk.take_time_s)
        self.network.attach(self.loop)
        self.trace.now = self.loop.time
        self.disk.now_ms = self.loop.wall_ms
        self.violation: Violation | None = None
        self.checks = Checks(self._record_violation, self._newest_epoch, KEYED)
        self.chance = self._new_chance()
        self._segment_ms = (300, 1_000) if kind == "single" else (3_000, 1 << 40)
        self._pauses_s = (0.02, 0.2) if kind == "single" else (0.1, 0.8)
        """The range of the producers' mean pauses. A broker that crashes at disk operations must write often."""
        self._durable = self.chance.random() < (0.5 if kind == "single" else 0.2) if durable is None else durable
        """Whether acknowledgements wait for the disk. Only then may a single broker's disk lose unsynced data."""
        chosen = [each for each in OPTIONAL_WORKLOADS if self.chance.random() < OPTIONAL_WORKLOAD_RATE]
        self.optional_workloads = chosen if workloads is None else workloads
        self.bank: Bank | None = None
        self.keys: Keys | None = None
        self.points: CrashingDisk | None = None
        """The crash points of a single broker."""
        self.cluster: Cluster
        self.producers: list[Producer] = []

    def _new_chance(self) -> random.Random:
        """Return a generator with a seed of its own, so that one part's draws do not change those of others."""
        return random.Random(self._chance_of_seeds.getrandbits(64))

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self._run())
        except NoProgressError as error:
            raise Failure(self.seed, self.kind, str(error), self.trace) from None
        except Violation as violation:
            raise Failure(self.seed, self.kind, str(violation), self.trace) from None
        except Exception as error:
            why = f"the run ended with {type(error).__name__}: {error}"
            raise Failure(self.seed, self.kind, why, self.trace) from error
        finally:
            self._close_loop()
        for failure in self.loop.failures:
            raise Failure(self.seed, self.kind, f"uncaught exception: {failure}", self.trace)

    def _close_loop(self) -> None:
        """Cancel the tasks that a failed run leaves behind."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with suppress(NoProgressError):
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=1))
        self.loop.close()

    def _error_logged(self, event: str) -> None:
        if self.points is not None and self.points.dead:
            return  # by a process that has reached its crash point
        self._record_violation(Violation(f"a broker logged an error: {event}"))

    def _record_violation(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("check", f"VIOLATED: {violation}")
            self._violation_found.set()

    # -- the run ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._violation_found = asyncio.Event()
        self.cluster = self._new_cluster()
        work = asyncio.ensure_future(self._scenario())
        violated = asyncio.ensure_future(self._violation_found.wait())
        await asyncio.wait([work, violated], return_when=asyncio.FIRST_COMPLETED)
        if self.violation is not None:
            raise self.violation
        violated.cancel()
        work.result()

    def _new_cluster(self) -> Cluster:
        match self.kind:
            case "embedded":
                return self._new_embedded_brokers()
            case "zookeeper":
                return self._new_zookeeper_brokers()
            case "single":
                return self._new_single_broker()
            case _:
                assert_never(self.kind)

    def _new_embedded_brokers(self) -> EmbeddedBrokers:
        count, log_dirs = self._size()
        return EmbeddedBrokers(
            count=count,
            log_dirs=log_dirs,
            settings=self._settings(),
            environment=self._environment(self.disk),
            disk=self.disk,
            network=self.network,
            trace=self.trace,
        )

    def _environment(self, disk: Disk) -> BrokerEnvironment:
        clock = Clock(self.loop.wall_ns, self.loop.monotonic_ns)
        return BrokerEnvironment(TraceLog(self.trace, self._error_logged), clock, disk, self._new_chance().randbytes)

    def _settings(self) -> dict[str, str]:
        sync = {SYNC: "always"} if self._durable else {}
        return {EMULATE: self.chance.choice(("union", "3.9", "4.0")), **sync}

    def _new_single_broker(self) -> SingleBroker:
        points = self.points = CrashingDisk(self.disk, self._new_chance(), lambda: self._single_broker.drop_unsent())
        self._single_broker = SingleBroker(
            settings=self._settings(),
            environment=self._environment(points.as_disk()),
            points=points,
            disk=self.disk,
            network=self.network,
            trace=self.trace,
        )
        return self._single_broker

    def _new_zookeeper_brokers(self) -> ZooKeeperBrokers:
        count, log_dirs = self._size()
        return ZooKeeperBrokers(
            count=count,
            log_dirs=log_dirs,
            chance=self._new_chance(),
            unexpected=self._error_logged,
            checks=ZooKeeperChecks(self.checks),
            disk=self.disk,
            network=self.network,
            trace=self.trace,
            loop=self.loop,
        )

    def _size(self) -> tuple[int, int]:
        """Choose the number of brokers, and of log directories per broker."""
        return self.chance.choice((3, 3, 4)), self.chance.choice((1, 1, 2))

    async def _scenario(self) -> None:
        await self.cluster.start()
        admin = self.client("admin")
        await self._create_topic(admin, TOPIC, PARTITIONS)
        workloads = self._workloads()
        for workload in workloads:
            await self._create_topic(admin, workload.topic, workload.partitions, workload.settings)
        self.producers = [
            Producer(self.client("idempotent-0"), self.checks, TOPIC, PARTITIONS, acks=-1, idempotent=True),
            Producer(self.client("idempotent-1"), self.checks, TOPIC, PARTITIONS, acks=-1, idempotent=True),
            Producer(self.client("plain-all"), self.checks, TOPIC, PARTITIONS, acks=-1, idempotent=False),
            Producer(
                self.client("plain-one"),
                self.checks,
                TOPIC,
                PARTITIONS,
                acks=1,
                idempotent=False,
                promised=self.kind == "single",
            ),
        ]
        reader = SessionReader(self.client("reader"), self.checks, TOPIC, PARTITIONS, self.cluster.ids)
        near = Reader(self.client("near", rack="rack-1"), self.checks, TOPIC, PARTITIONS)
        watcher = LatestOffsetReader(self.client("watcher"), self.checks, TOPIC, PARTITIONS)
        administrator = Administrator(admin, self.checks, self.cluster.ids, TOPIC, PARTITIONS)
        faults = self._faults(administrator)
        group = ConsumerGroup(self.client, self.checks, TOPIC, PARTITIONS, self._new_chance())
        writers = [*self.producers, *(writer for workload in workloads for writer in workload.writers)]
        producing = [self._task(writer.run(self.chance.uniform(*self._pauses_s))) for writer in writers]
        readers = (reader.run(), near.run(), watcher.run(), group.run(), *(each.reader.run() for each in workloads))
        background = [self._task(work) for work in (*readers, self._observe())]
        try:
            async with asyncio.timeout(self._duration_s + FAULTS_END_WITHIN_S):
                await (faults() if self._script is None else self._script(self))
        except TimeoutError:
            self.checks.fail(f"the faults have not ended {FAULTS_END_WITHIN_S:g} s after they should have")
        self.trace.add("all", "the faults have ended")
        for writer in writers:
            writer.stop()
        await self._within("the producers finish", asyncio.gather(*producing))
        await self._until("all replicas are in the ISR and all brokers know it", self.cluster.unsettled)
        await self._until("the reader reaches the end", lambda: _different(reader.positions, self._ends()))
        await self._until("the reader with a rack reaches the end", lambda: _different(near.positions, self._ends()))
        background += [self._task(each.final_reader.run()) for each in workloads]
        for workload in workloads:
            await self._check_workload(workload)
        await self._until("the group commits the end", lambda: _different(group.committed(), self._ends()))
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await self._until("the replicas are equal", self._different_replicas)
        self._compare()
        await self.cluster.stop_all()

    def _workloads(self) -> list[Workload]:
        found: list[Workload] = [Numbers(self.client, self._record_violation, TOPIC)]
        if "bank" in self.optional_workloads:
            self.bank = Bank(self.client, self._record_violation)
            found.append(self.bank)
        if "keys" in self.optional_workloads:
            self.keys = Keys(self.client, self.checks)
            found.append(self.keys)
        return found

    async def _check_workload(self, workload: Workload) -> None:
        for what, reader in (("is read", workload.reader), ("is read from the beginning", workload.final_reader)):
            missing = partial(self._missing, reader, workload.topic)
            await self._until(f"{workload.topic} {what}", missing)
        workload.check()

    def _missing(self, reader: Reader | CommittedReader, topic: str) -> str:
        return _different(reader.positions, self._ends(topic))

    def _faults(self, administrator: Administrator) -> Callable[[], Awaitable[None]]:
        if isinstance(self.cluster, SingleBroker):
            return Crashes(
                chance=self._new_chance(),
                broker=self.cluster,
                disk=self.disk,
                trace=self.trace,
                administrator=administrator,
                loses_unsynced=self._durable,
            ).run
        faults = Faults(
            chance=self._new_chance(),
            cluster=self.cluster,
            network=self.network,
            disk=self.disk,
            trace=self.trace,
            administrator=administrator,
        )
        if isinstance(self.cluster, ZooKeeperBrokers):
            faults.add(ZooKeeperFaults(self._new_chance(), self.cluster, self.trace).faults)
        return lambda: faults.run(self._duration_s)

    def client(self, host: str, rack: str = "") -> Client:
        return Client(host=host, brokers=self.cluster.hosts, chance=self._new_chance(), trace=self.trace, rack=rack)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.violation is None:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self._record_violation(Violation(f"a client failed: {type(error).__name__}: {error}"))

    async def _create_topic(
        self, admin: Client, name: str, partitions: int, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        settings = {"segment.ms": str(self.chance.choice(self._segment_ms)), **settings}
        entries = [CreateTopicsRequest.CreatableTopicConfig(*each) for each in settings.items()]
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, -1, [], entries)
        while True:
            with suppress(UnreachableError):
                response = await admin.ask_controller(CreateTopicsRequest([topic], 5000), 7, CreateTopicsResponse)
                if response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
                admin.note(f"CreateTopics {name} failed: {ErrorCode(response.topics[0].error_code).name}")
            await asyncio.sleep(0.1)

    # -- observation --------------------------------------------------------------------------------------------------

    async def _observe(self) -> None:
        while True:
            self.observe()
            await asyncio.sleep(OBSERVATION_INTERVAL_S)

    def observe(self) -> None:
        """Report the state of all leaders to the checks."""
        for broker, node in self.cluster.running.items():
            for partition in node.broker.partitions:
                if partition.leader is not None and not partition.error:
                    topic_partition = (partition.topic, partition.index)
                    # With the topic id, because a topic may be created again under the same name.
                    unique = (f"{partition.topic} {partition.topic_id.hex()[:8]}", partition.index)
                    self.checks.leads(unique, partition.leader_epoch, broker, partition.high_watermark)
                    ends = {id: each.log_end_offset for id, each in self.cluster.in_sync(*topic_partition).items()}
                    self.checks.isr_ends(topic_partition, partition.high_watermark, ends)

    def _newest_epoch(self, topic_partition: tuple[str, int]) -> int:
        known = (node.broker.partitions.get(*topic_partition) for node in self.cluster.running.values())
        return max((partition.leader_epoch for partition in known if partition is not None), default=0)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _within(self, what: str, work: Any) -> None:
        try:
            async with asyncio.timeout(self._settled_within_s):
                await work
        except TimeoutError:
            self.checks.fail(f"not within {self._settled_within_s:g} s after the faults: {what}")

    async def _until(self, what: str, missing: Callable[[], str]) -> None:
        """Wait until `missing` returns an empty string."""
        end = self.loop.time() + self._settled_within_s
        while why := missing():
            if self.loop.time() > end:
                self.checks.fail(f"not within {self._settled_within_s:g} s after the faults: {what}: {why}")
            await asyncio.sleep(0.1)

    def _logs(self) -> dict[tuple[str, int], dict[int, tuple[int, Log]]]:
        """Return high watermark and log, by partition and broker."""
        found: dict[tuple[str, int], dict[int, tuple[int, Log]]] = {}
        for broker, node in self.cluster.running.items():
            for partition in node.broker.partitions:
                if partition.served_log is not None:
                    logs = found.setdefault((partition.topic, partition.index), {})
                    logs[broker] = (partition.high_watermark, partition.served_log)
        return found

    def _different_replicas(self) -> str:
        for topic_partition, logs in self._logs().items():
            ends = {broker: (high_watermark, log.log_end_offset) for broker, (high_watermark, log) in logs.items()}
            if len({end for pair in ends.values() for end in pair}) > 1:
                return f"{topic_partition}: high watermark and log end offset by broker: {ends}"
        return ""

    def _ends(self, topic: str = TOPIC) -> list[int]:
        logs = self._logs()
        count = sum(name == topic for name, _ in logs)
        return [max(high_watermark for high_watermark, _ in logs[topic, at].values()) for at in range(count)]

    def _compare(self) -> None:
        for topic_partition, logs in sorted(self._logs().items()):
            start = max(log.log_start_offset for _, log in logs.values())
            data = {broker: _bytes_between(log, start, end) for broker, (end, log) in logs.items()}
            if self.keys is not None and topic_partition[0] == KEYED:
                end = max(high_watermark for high_watermark, _ in logs.values())
                self.keys.check_replicas(
                    topic_partition, end, {broker: _values(whole) for broker, whole in data.items()}
                )
            else:
                whole = next(iter(data.values()))
                self.checks.final(topic_partition, _values(whole) if topic_partition[0] == TOPIC else {}, data)


def _values(data: bytes) -> dict[int, bytes]:
    return {record.offset: record.value or b"" for header in iterate(data) for record in read_records(data, header)}


def _different(reached: list[int], ends: list[int]) -> str:
    return "" if reached == ends else f"{reached} of {ends}"


def _bytes_between(log: Log, start: int, high_watermark: int) -> bytes:
    """Return all batches with records from `start` on."""
    offset, parts = start, []
    while offset < high_watermark and (piece := log.read(offset, 1 << 20, limit=high_watermark)) is not None:
        data = piece.tobytes()
        parts.append(data)
        for header in iterate(data):
            offset = header.next_offset
    return b"".join(parts)
