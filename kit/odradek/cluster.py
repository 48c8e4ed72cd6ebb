"""`Cluster`: a Kafka cluster, of one broker or several, for the length of a `with` block, a test or a process.

Owns what a user calls. Where the brokers run, on a thread of this process or in a child process, is a host's business
(`hosts`); what a Kafka client can ask for as well is asked through one (`client`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.client import Client, KafkaError
from odradek.client.client import format_address, parse_address
from odradek.faults import Faults
from odradek.hosts.host import Host, LogEntry, NotRunningError
from odradek.hosts.thread import ThreadHost
from odradek.layout import OF_EACH, broker_settings, cluster_settings
from odradek.settings import as_text, gather
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Topics = Mapping[str, int] | Iterable[str]

_HOST = "127.0.0.1"
_CREATE_TIMEOUT_MS = 30_000
_POLL_S = 0.005


class Cluster:
    """A Kafka broker, or several, in this process on a thread of their own, or with `process=True` in a child process.

        with Cluster(topics={"orders": 3}) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    `config` takes Kafka's names and values (`{"message.max.bytes": 2_000_000}`); an unknown name is a `SettingsError`
    that names the nearest known one. `data` keeps topics and groups over `stop` and `start` and over processes; without
    it they live in a temporary directory that goes away with the cluster. `port=0` lets the system choose; the port
    stays the same over `stop`, `kill` and `start`. `emulate="3.9"` answers ApiVersions as that release. `durable=True`
    acknowledges, and shows to readers, only what is on the disk: what a power loss leaves.

    `brokers=3` makes a cluster of three, with the ids 0, 1 and 2, that replicate; `racks=["a", "a", "b"]` says where
    they stand. `stop`, `kill` and `start` take one of them (`cluster.kill(1)`), `add_broker` brings another.

    All methods block for as long as they need, and may be called from any thread; `async with` does not block the loop
    while the broker starts and stops. Several clusters may live side by side.
    """

    def __init__(
        self,
        *,
        topics: Topics = (),
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        data: Path | str | None = None,
        port: int = 0,
        emulate: str | None = None,
        process: bool = False,
        durable: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks for {brokers} brokers")
        if port and brokers > 1:
            raise ValueError("one port is not enough for several brokers; the system chooses them")
        self._topics = topics
        self._settings = gather(overrides=config).values
        shared = OF_EACH & set(self._settings)
        if shared and brokers > 1:
            raise ValueError(f"several brokers cannot share {', '.join(sorted(shared))}: each gets its own")
        self._data = None if data is None else Path(data)
        self._emulate = emulate
        self._durable = durable
        self._ports = [port] + [0] * (brokers - 1)
        self._racks: list[str | None] = [None] * brokers if racks is None else list(racks)
        self._running: set[int] = set()
        self._directory: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host = _host(process)
        self.faults = Faults(self._host)
        """What goes wrong between the broker and its clients, by order: see `Faults`."""

    @property
    def bootstrap_servers(self) -> str:
        """What a client's `bootstrap.servers` takes: all brokers, with a comma between them. Stays the same from the
        first start on, but for brokers that are added."""
        if 0 in self._ports:
            raise NotRunningError
        return ",".join(format_address(_HOST, port) for port in self._ports)

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that run."""
        return sorted(self._running)

    @property
    def logs(self) -> list[LogEntry]:
        """The last 10,000 events that the broker logged, oldest first: a mapping each, with `event` and `level`."""
        return self._host.logs

    def start(self, broker: int | None = None) -> Self:
        """Start the cluster, or one broker that was stopped or killed, on the data that is left; returns when it
        answers."""
        if broker is not None:
            self._start_broker(broker)
            return self
        first = self._directory is None
        if self._directory is None:
            self._directory = self._new_directory()
        try:
            settings = cluster_settings(self._common(), self._directory, _HOST, self._ports, self._racks)
            self._started(self._host.start(settings))
            if first:
                self._create_own_topics()
        except BaseException:
            if first:
                # Nothing runs or lies about after a start that failed, and the next one is the first.
                self.close()
            raise
        return self

    def stop(self, broker: int | None = None) -> None:
        """An orderly end, of the cluster or of one broker: requests in flight are answered, logs flushed; what others
        can lead, they lead. Data stays for `start`."""
        if broker is None:
            self._host.stop()
            self._running.clear()
        else:
            self._host.stop_broker(self._started_one(broker))
            self._running.discard(broker)

    def kill(self, broker: int | None = None) -> None:
        """The end of `kill -9`, of the cluster or of one broker: nothing is flushed or answered. Data stays as it is,
        for `start`."""
        if broker is None:
            self._host.kill()
            self._running.clear()
        else:
            self._host.kill_broker(self._started_one(broker))
            self._running.discard(broker)

    def add_broker(self, *, rack: str | None = None) -> int:
        """One more broker, empty; its id. Only a cluster that began with several can grow."""
        if len(self._ports) == 1:
            raise ValueError("a broker that is alone keeps the cluster's metadata to itself: begin with brokers=2")
        self._ports.append(0)
        self._racks.append(rack)
        broker = len(self._ports) - 1
        try:
            self._start_broker(broker)
        except BaseException:
            self._ports.pop()
            self._racks.pop()
            raise
        return broker

    def close(self) -> None:
        """Stop, and forget everything that was not put under `data`. The next `start` is the first again."""
        self._host.stop()
        self._running.clear()
        self._directory = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def reset(self) -> None:
        """A cluster as new, in below 10 ms for a test's few topics: topics, groups, producers, dynamic configurations
        (of brokers, groups and client metrics) and faults are gone; the address and connections stay.

        What waits in the broker (a long poll, a group's rebalance) ends with an error; a request that a fault delays
        goes on when its time has come. Topics given to the constructor are created again, with new topic ids. Settings
        of the constructor and `logs` stay.

        The wall clock shows the real time again. No record is left from a later time that this would take it back
        before: they went with their topics, and so did committed offsets and producers, which expire on that clock. The
        clock of timeouts stays where it was moved to: it never runs backwards, and only its differences mean something,
        so timers that still wait (retention's next look, the removal of deleted files) wait no longer than before.
        """
        self._host.reset(_as_mapping(self._topics))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create one topic, with so many replicas (-1: `default.replication.factor`). `KafkaError` if it exists, or if
        the broker refuses it."""
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(key, as_text(value)) for key, value in (config or {}).items()
        ]
        self._create([CreateTopicsRequest.CreatableTopic(name, partitions, replicas, configs=configs)])

    def create_topics(self, topics: Topics) -> None:
        """Create several topics: names (a partition each), or a mapping from name to number of partitions."""
        wanted = _as_mapping(topics)
        if wanted:
            self._create(
                [CreateTopicsRequest.CreatableTopic(name, partitions, -1) for name, partitions in wanted.items()]
            )

    def wait_for_group(
        self, group_id: str, *, members: int | None = None, state: str = "Stable", timeout_s: float = 30.0
    ) -> None:
        """Return when a consumer group is in `state`, with so many members if that is said; else `TimeoutError`."""
        deadline = time.monotonic() + timeout_s
        with self._client() as client:
            while True:
                (group,) = client.call(DescribeGroupsRequest([group_id]), DescribeGroupsResponse).groups
                if group.group_state == state and members in (None, len(group.members)):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"group {group_id!r} is {group.group_state or 'unknown'} with {len(group.members)} members"
                        f" after {timeout_s:g} s"
                    )
                time.sleep(_POLL_S)

    def advance(self, *, wall_ms: int = 0, timeouts_ms: int = 0) -> None:
        """Move the broker's time: the wall clock of records and retention, or the clock of timeouts (sessions, delays).

        Timers that become due have fired when this returns. Retention and the log cleaner look at the clock when they
        run next, which is a matter of timeouts (`log.retention.check.interval.ms`, `log.cleaner.backoff.ms`), or of
        `delete_old_segments` and `clean_logs`.
        """
        if timeouts_ms < 0:
            raise ValueError("the clock of timeouts never runs backwards")
        self._host.advance(wall_ms, timeouts_ms)

    def delete_old_segments(self) -> None:
        """Retention runs now: `retention.ms`, `retention.bytes`, and what DeleteRecords left, by the wall clock as it
        is. As in Kafka whole segments go, and none that holds a record above the high watermark."""
        self._host.delete_old_segments()

    def clean_logs(self) -> None:
        """The log cleaner runs now, and compacts every topic with `cleanup.policy=compact` that is dirty enough
        (`min.cleanable.dirty.ratio`, `max.compaction.lag.ms`), by the wall clock as it is. As in Kafka the active
        segment is left alone: let it end early by `segment.bytes` or `segment.ms`."""
        self._host.clean_logs()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio

        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def _new_directory(self) -> Path:
        if self._data is not None:
            return self._data
        self._temporary = tempfile.TemporaryDirectory(prefix="odradek-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def _common(self) -> dict[str, str]:
        """The settings that all brokers share."""
        found = {}
        if self._data is None:
            # What dies with the cluster is not worth an fsync.
            found["odradek.sync"] = "false"
        if self._durable:
            found["odradek.sync"] = "always"
        if self._emulate is not None:
            found["odradek.emulate"] = self._emulate
        return found | dict(self._settings)

    def _start_broker(self, broker: int) -> None:
        known = self._known(broker)
        if self._directory is None:
            raise NotRunningError
        if known in self._running:
            raise RuntimeError(f"broker {known} is running already")
        port, rack = self._ports[known], self._racks[known]
        settings = broker_settings(
            self._common(), self._directory, _HOST, port, rack, broker_id=broker, brokers=len(self._ports)
        )
        self._started(self._host.start_broker(settings))

    def _started(self, addresses: Mapping[int, str]) -> None:
        for number, (broker, address) in enumerate(sorted(addresses.items())):
            place = number if len(self._ports) == 1 else broker
            self._ports[place] = parse_address(address)[1]
            self._running.add(broker)

    def _started_one(self, broker: int) -> int:
        if self._known(broker) not in self._running:
            raise NotRunningError(broker if self._running else None)
        return broker

    def _known(self, broker: int) -> int:
        if len(self._ports) == 1:
            raise ValueError("a broker that is alone is the cluster: stop, kill and start it without an id")
        if not 0 <= broker < len(self._ports):
            raise ValueError(f"there is no broker {broker}; they are 0 to {len(self._ports) - 1}")
        return broker

    def _create_own_topics(self) -> None:
        """Those of the constructor, unless the data that was given has them already."""
        wanted = _as_mapping(self._topics)
        if wanted:
            with self._client() as client:
                there = {topic.name for topic in client.metadata().topics}
            self.create_topics({name: partitions for name, partitions in wanted.items() if name not in there})

    def _client(self) -> Client:
        return Client(self.bootstrap_servers)

    def _create(self, topics: list[CreateTopicsRequest.CreatableTopic]) -> None:
        with self._client() as client:
            answer = client.call(CreateTopicsRequest(topics, _CREATE_TIMEOUT_MS), CreateTopicsResponse)
        for result in answer.topics:
            if result.error_code != ErrorCode.NONE:
                raise KafkaError(result.error_code, f"topic {result.name!r}", result.error_message)


def _as_mapping(topics: Topics) -> Mapping[str, int]:
    return topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def _host(process: bool) -> Host:
    if process:
        from odradek.hosts.process import ProcessHost

        return ProcessHost()
    return ThreadHost()
