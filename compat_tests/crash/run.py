"""One run: a broker process that crashes repeatedly under the clients and checks of the simulation.

Owns the process, the event loop on which the clients find it by its name in the simulation, and the final check of the
log after the last recovery. The seed determines the crash points and the random choices of the clients, but not the
progress of the clients at a crash.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from compat_tests.odradek_up import up
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records
from simulation.checks import Checks, Violation
from simulation.client import Client, UnreachableError
from simulation.committed_reader import CommittedReader
from simulation.consumer_group import ConsumerGroup
from simulation.crash_points import OperationKind
from simulation.producers import Producer
from simulation.readers import FETCH_VERSION, LatestOffsetReader, Reader
from simulation.trace import Trace
from simulation.transaction_checks import TransactionChecks
from simulation.transactional_copiers import TransactionalCopier

HOST = "broker-0"
TOPIC = "events"
PARTITIONS = 3
RESULTS = "results"
RESULTS_PARTITIONS = 2
RUN_TIMES_S = (0.2, 1.2)
"""The least and the most time that the process runs, unless it reaches its crash point first."""
COMPLETE_WITHIN_S = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "150",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
POINTS: tuple[OperationKind, ...] = (
    ("open", "log"),
    ("write", "log"),
    ("sync", "log"),
    ("write_file", "index"),
    ("write_file", "timeindex"),
    ("write_file", "snapshot"),
    ("sync_file", "snapshot"),
    ("sync_file", "index"),
    ("write", "offsets log"),
    ("write", "metadata log"),
    ("truncate", "log"),
    ("remove", "snapshot"),
    ("replace_file", "leader-epoch-checkpoint"),
    ("replace_file", "recovery-point-offset-checkpoint"),
    ("replace_file", "replication-offset-checkpoint"),
    ("replace_file", "metadata quorum-state"),
    ("make_directory", "offsets directory"),
)


class NamedHostLoop(asyncio.SelectorEventLoop):
    """An event loop that connects to `port` of this machine for a host of the simulation."""

    port = 0

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert host == HOST
        return await super().create_connection(protocol_factory, "127.0.0.1", self.port, **options)


class Failure(AssertionError):
    """A check of the run failed."""


def run(seed: int, directory: Path, crashes: int) -> list[str]:
    """Crash a broker `crashes` times. Return the crash points that it reached. Raises Failure."""
    with asyncio.Runner(loop_factory=NamedHostLoop) as runner:
        return runner.run(_Run(seed, directory).run(crashes))


class _Run:
    def __init__(self, seed: int, directory: Path) -> None:
        self._seed = seed
        self._chance = random.Random(seed)
        self._directory = directory
        self._trace = Trace()
        self._checks = Checks(self._failed)
        self._transactions = TransactionChecks(self._failed)
        self._process: subprocess.Popen[str] | None = None
        self._failed_event = asyncio.Event()
        self._violation: Violation | None = None

    def _failed(self, violation: Violation) -> None:
        self._violation = self._violation or violation
        self._trace.add("check", f"VIOLATED: {violation}")
        self._failed_event.set()

    async def run(self, crashes: int) -> list[str]:
        began = time.monotonic()
        self._trace.now = lambda: time.monotonic() - began
        work = asyncio.ensure_future(self._scenario(crashes))
        failed_event = asyncio.ensure_future(self._failed_event.wait())
        try:
            await asyncio.wait([work, failed_event], return_when=asyncio.FIRST_COMPLETED)
            if self._violation is not None:
                raise self._violation
            await work
        except (Violation, TimeoutError) as error:
            command = f".venv/bin/python -m compat_tests.crash --seed {self._seed}"
            raise Failure(f"{error}\n\nseed {self._seed}; repeat it with: {command}\n{self._trace.text(80)}") from error
        finally:
            for task in (work, failed_event):
                task.cancel()
            await asyncio.gather(work, failed_event, return_exceptions=True)
            self._kill()
        reached = self._directory / "reached"
        return reached.read_text().splitlines() if reached.exists() else []

    # -- the process --------------------------------------------------------------------------------------------------

    async def _start(self, point: tuple[OperationKind | None, int] | None) -> bool:
        """Start the process. Return False if it reaches its crash point before it listens."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NamedHostLoop)
        program: tuple[str, ...] | None = None
        if point is not None:
            reached = str(self._directory / "reached")
            program = (
                *(sys.executable, "-m", "compat_tests.crash.process"),
                *(json.dumps(point), str(self._chance.random()), reached, "up"),
            )
        self._trace.add(HOST, f"starts, crash point {point}")
        arguments = ("--data", str(self._directory / "data"), "--port", str(loop.port))
        self._process, address = await asyncio.to_thread(
            up, self._directory / "log", arguments, SETTINGS, program=program, may_end=True
        )
        if address:
            loop.port = int(address.rpartition(":")[2])
        return bool(address)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    async def _run_for(self, seconds: float) -> None:
        """Wait some seconds, or until the process ends itself."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and self._process is not None and self._process.poll() is None:
            await asyncio.sleep(0.01)

    def _choose_crash_point(self) -> tuple[OperationKind | None, int] | None:
        chance = self._chance
        choice = chance.random()
        if choice < 0.2:
            return None
        if choice < 0.5:
            return None, chance.randint(1, 150)
        return chance.choice(POINTS), 1 + int(chance.expovariate(0.3))

    # -- the run ------------------------------------------------------------------------------------------------------

    async def _scenario(self, crashes: int) -> None:
        assert await self._start(None)
        await self._create_topics(self._client("admin"))
        checks, topic = self._checks, (TOPIC, PARTITIONS)
        producers = [
            Producer(self._client("idempotent-0"), checks, *topic, acks=-1, idempotent=True),
            Producer(self._client("idempotent-1"), checks, *topic, acks=-1, idempotent=True),
            Producer(self._client("plain-all"), checks, *topic, acks=-1, idempotent=False),
            Producer(self._client("plain-one"), checks, *topic, acks=1, idempotent=False, promised=True),
        ]
        results = (RESULTS, RESULTS_PARTITIONS)
        copiers = [
            TransactionalCopier(
                client=self._client(f"transactor-{number}"),
                checks=self._transactions,
                topic=RESULTS,
                partitions=RESULTS_PARTITIONS,
                source=TOPIC,
                number=number,
            )
            for number in range(2)
        ]
        committed = CommittedReader(self._client("committed"), self._transactions, *results)
        reader = Reader(self._client("reader"), checks, *topic)
        watcher = LatestOffsetReader(self._client("watcher"), checks, *topic)
        group = ConsumerGroup(self._client, checks, *topic, self._chance)
        async with asyncio.TaskGroup() as tasks:
            writers: list[Producer | TransactionalCopier] = [*producers, *copiers]
            producing = [tasks.create_task(writer.run(0.02)) for writer in writers]
            readers = (reader.run(), watcher.run(), group.run(), committed.run())
            forever = [tasks.create_task(work) for work in readers]
            for _ in range(crashes):
                await self._run_for(self._chance.uniform(*RUN_TIMES_S))
                self._kill()
                self._trace.add(HOST, "is killed")
                await self._start(self._choose_crash_point())
            await self._run_for(self._chance.uniform(*RUN_TIMES_S))
            self._kill()
            assert await self._start(None)
            self._trace.add("all", "last recovery is complete")
            for writer in writers:
                writer.stop()
            async with asyncio.timeout(COMPLETE_WITHIN_S):
                await asyncio.gather(*producing)
                logs = await self._retry(self._read_all)
                ends = [len(logs[partition]) for partition in range(PARTITIONS)]
                while reader.positions != ends or group.committed() != ends:
                    await asyncio.sleep(0.05)
                final = CommittedReader(self._client("final"), None, *results)
                forever.append(tasks.create_task(final.run()))
                # All transactions have ended: both readers reach the end of the log.
                while not final.ends == final.positions == committed.positions:
                    await asyncio.sleep(0.05)
            for task in forever:
                task.cancel()
        self._transactions.final(final.found)
        for partition, log in logs.items():
            checks.final((TOPIC, partition), log, {0: b""})

    def _client(self, host: str) -> Client:
        chance = random.Random(self._chance.getrandbits(64))
        return Client(
            host=host,
            brokers=[HOST],
            chance=chance,
            trace=self._trace,
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )

    async def _create_topics(self, admin: Client) -> None:
        entries = [CreateTopicsRequest.CreatableTopicConfig("segment.ms", "200")]
        partition_counts = {TOPIC: PARTITIONS, RESULTS: RESULTS_PARTITIONS}
        topics = [CreateTopicsRequest.CreatableTopic(*each, 1, [], entries) for each in partition_counts.items()]
        response = await admin.ask_controller(CreateTopicsRequest(topics, 5000), 7, CreateTopicsResponse)
        assert [each.error_code for each in response.topics] == [ErrorCode.NONE] * len(topics)

    async def _retry(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            with suppress(UnreachableError):
                return await ask()
            await asyncio.sleep(0.05)

    async def _read_all(self) -> dict[int, dict[int, bytes]]:
        client = self._client("final")
        try:
            return {partition: await self._read_log(client, partition) for partition in range(PARTITIONS)}
        finally:
            client.close()

    async def _read_log(self, client: Client, partition: int) -> dict[int, bytes]:
        wire, found, end = await client.leader(TOPIC, partition), dict[int, bytes](), 1
        while len(found) < end:
            partitions = [FetchRequest.FetchPartition(partition, -1, len(found), partition_max_bytes=1 << 20)]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20)
            request.topics = [FetchRequest.FetchTopic(TOPIC, partitions=partitions)]
            data = (await wire.ask(request, FETCH_VERSION, FetchResponse)).responses[0].partitions[0]
            assert data.error_code == ErrorCode.NONE
            end, records = data.high_watermark, data.records or b""
            assert isinstance(records, bytes | memoryview)
            for header in iterate(records, allow_partial=True):
                found |= {each.offset: each.value or b"" for each in read_records(records, header)}
        return found
