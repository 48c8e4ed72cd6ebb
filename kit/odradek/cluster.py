"""`Cluster`: a Kafka cluster of one or several brokers, for the length of a `with` block, a test or a process.

Owns the methods that a user calls. A host (`hosts`) runs the brokers, on a thread of this process or in a child
process; requests that any Kafka client can send go through a `Client`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.client import Client
from odradek.client.client import format_address, parse_address
from odradek.exceptions import AlreadyRunningError, KafkaError, NotRunningError
from odradek.faults import Faults
from odradek.hosts.host import Host, LogEntry
from odradek.hosts.thread import ThreadHost
from odradek.layout import PER_BROKER_SETTINGS, broker_settings, cluster_settings
from odradek.settings import as_text, gather
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Topics = Mapping[str, int] | Iterable[str]
"""Topics to create: names, with one partition each, or a mapping from name to number of partitions."""

_HOST = "127.0.0.1"
_CREATE_TIMEOUT_MS = 30_000
_POLL_S = 0.005


class Cluster:
    """One Kafka broker, or several, on a thread of this process, or in a child process with `process=True`.

        with Cluster(topics={"orders": 3}) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    - `topics` are created by the first `start`, and again by `reset`.
    - `brokers=3` starts three brokers that replicate, with the ids 0, 1 and 2; `racks=["a", "a", "b"]` names their
      racks. `stop`, `kill` and `start` take the id of one broker, and `add_broker` adds another.
    - `config` has Kafka's names and values, such as `{"message.max.bytes": 2_000_000}`. For a setting of Kafka that
      has no effect in Odradek, `start` writes a warning to `logs`.
    - `data` is the data directory. Without it the cluster uses a temporary directory and `close` removes it.
    - `port=0` lets the system choose a port. `stop`, `kill` and `start` keep it.
    - `emulate="3.9"` makes ApiVersions respond as that release of Kafka does.
    - `durable=True` acknowledges records, and returns them to consumers, only when they are on the disk (fdatasync).

    Methods block until they are done, and any thread may call them. `async with` starts and closes the cluster without
    blocking the event loop. A process may have several clusters.

    Raises SettingsError for an unknown setting or a value that Kafka refuses, and ValueError for arguments that do not
    fit together. With `process=True` every method that reaches the brokers also raises TimeoutError when the child
    process does not respond within 60 s, and BrokerProcessError when it has exited; `start` starts a new one.
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
            raise ValueError(f"brokers must be at least 1, got {brokers}")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"racks must name a rack for each of {brokers} brokers, got {len(racks)}")
        if port and brokers > 1:
            raise ValueError(f"port must be 0 for several brokers, because each needs its own; got {port}")
        self._topics = topics
        gathered = gather(overrides=config)
        self._settings = gathered.values
        self._setting_warnings = gathered.warnings
        shared = PER_BROKER_SETTINGS & set(self._settings)
        if shared and brokers > 1:
            raise ValueError(f"config must not set {', '.join(sorted(shared))} for several brokers: each has its own")
        self._data = None if data is None else Path(data)
        self._emulate = emulate
        self._durable = durable
        self._ports = [port] + [0] * (brokers - 1)
        self._racks: list[str | None] = [None] * brokers if racks is None else list(racks)
        self._running: set[int] = set()
        self._directory: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host = _new_host(process)
        self.faults = Faults(self._host)
        """Faults that the brokers apply to requests and responses: see `Faults`."""

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: the addresses of all brokers, separated by commas.

        It stays the same from the first start on; `add_broker` appends to it. Raises NotRunningError before the first
        start.
        """
        if 0 in self._ports:
            raise NotRunningError
        return ",".join(format_address(_HOST, port) for port in self._ports)

    @property
    def brokers(self) -> list[int]:
        """The ids of the running brokers."""
        return sorted(self._running)

    @property
    def logs(self) -> list[LogEntry]:
        """The last 10,000 log events of the brokers, oldest first: a mapping each, with `event` and `level`."""
        return self._host.logs

    def start(self, broker: int | None = None) -> Self:
        """Start the cluster, or one broker that was stopped or killed, on its data; return when it responds.

        Raises AlreadyRunningError; NotRunningError for one broker of a cluster that is not running; DataDirectoryError
        for a data directory that is locked or holds something other than this cluster; ValueError for settings that
        cannot be served and for an unknown broker id; KafkaError when the broker refuses one of the constructor's
        topics; ClientError when it does not respond; OSError when a port is in use or the disk fails.
        """
        if broker is not None:
            self._start_broker(broker)
            return self
        is_first_start = self._directory is None
        if self._directory is None:
            self._directory = self._new_directory()
        try:
            for warning in self._setting_warnings:
                warning.log(self._host.logger)
            settings = cluster_settings(self._common_settings(), self._directory, _HOST, self._ports, self._racks)
            self._record_addresses(self._host.start(settings))
            if is_first_start:
                self._create_initial_topics()
        except BaseException:
            if is_first_start:
                # The next start is then a first start again, which creates the topics.
                self.close()
            raise
        return self

    def stop(self, broker: int | None = None) -> None:
        """Stop the cluster, or one broker, with a controlled shutdown: leadership moves to other brokers, requests in
        progress get their responses, logs are flushed. The data stay for `start`.

        Stopping a cluster that is not running does nothing. For one broker: raises NotRunningError when it is not
        running, and ValueError for an unknown broker id.
        """
        if broker is None:
            self._host.stop()
            self._running.clear()
        else:
            self._host.stop_broker(self._running_broker(broker))
            self._running.discard(broker)

    def kill(self, broker: int | None = None) -> None:
        """Stop the cluster, or one broker, as kill -9 does: without responses and without a flush. The data stay as
        they are, for `start`.

        Killing a cluster that is not running does nothing. For one broker: raises NotRunningError when it is not
        running, and ValueError for an unknown broker id.
        """
        if broker is None:
            self._host.kill()
            self._running.clear()
        else:
            self._host.kill_broker(self._running_broker(broker))
            self._running.discard(broker)

    def add_broker(self, *, rack: str | None = None) -> int:
        """Start one more broker, which has no replicas yet; return its id.

        Raises ValueError for a cluster that was created with one broker, because that one keeps the metadata in its own
        directory; NotRunningError; and OSError as `start` does.
        """
        if len(self._ports) == 1:
            raise ValueError("a cluster of one broker cannot grow: create it with brokers=2 or more")
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
        """Stop the cluster and remove its temporary directory. The next `start` begins with an empty cluster, or with
        the data in `data`."""
        self._host.stop()
        self._running.clear()
        self._directory = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def reset(self) -> None:
        """Delete topics, groups, producers, dynamic configurations (of brokers, groups and client metrics) and faults;
        create the constructor's topics again, with new topic ids. A test's few topics take less than 10 ms.

        Addresses, connections, the constructor's settings and `logs` stay. Requests that wait in the broker, such as a
        Fetch or a JoinGroup, end with an error. A request that a fault delays continues when its delay has passed.

        The wall clock shows the real time again: no record has a later timestamp, because all topics are deleted. The
        clock of timeouts stays where `advance` moved it, because it never runs backwards.

        Raises NotRunningError, and ValueError when the controller cannot create or delete a topic.
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
        """Create one topic with this number of partitions and replicas; -1 means the brokers' `num.partitions` or
        `default.replication.factor`.

        Raises KafkaError when the topic exists or the broker refuses it, ClientError when no broker responds, and
        NotRunningError before the first start.
        """
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(key, as_text(value)) for key, value in (config or {}).items()
        ]
        self._create([CreateTopicsRequest.CreatableTopic(name, partitions, replicas, configs=configs)])

    def create_topics(self, topics: Topics) -> None:
        """Create several topics: names, with one partition each, or a mapping from name to number of partitions.

        Raises as `create_topic` does, for the first topic that the broker refuses; it still creates the others.
        """
        wanted = _as_mapping(topics)
        if wanted:
            self._create(
                [CreateTopicsRequest.CreatableTopic(name, partitions, -1) for name, partitions in wanted.items()]
            )

    def wait_for_group(
        self, group_id: str, *, members: int | None = None, state: str = "Stable", timeout_s: float = 30.0
    ) -> None:
        """Wait until a consumer group is in `state` and, if `members` is given, has that number of members.

        Raises TimeoutError after `timeout_s`, ClientError when no broker responds, and NotRunningError before the first
        start.
        """
        deadline = time.monotonic() + timeout_s
        with self._client() as client:
            while True:
                (group,) = client.call(DescribeGroupsRequest([group_id]), DescribeGroupsResponse).groups
                if group.group_state == state and members in (None, len(group.members)):
                    return
                if time.monotonic() > deadline:
                    wanted = state if members is None else f"{state} with {members} members"
                    raise TimeoutError(
                        f"group {group_id!r} must be {wanted}, but is {group.group_state or 'unknown'} with"
                        f" {len(group.members)} members after {timeout_s:g} s"
                    )
                time.sleep(_POLL_S)

    def advance(self, *, wall_ms: int = 0, timeouts_ms: int = 0) -> None:
        """Advance the brokers' wall clock (record timestamps, retention) and clock of timeouts (sessions, delays).

        A negative `wall_ms` moves the wall clock back; the clock of timeouts never runs backwards.

        Timers that become due have fired when this returns. Retention and the log cleaner read the wall clock at their
        next run: after `log.retention.check.interval.ms` and `log.cleaner.backoff.ms` on the clock of timeouts, or when
        `delete_old_segments` and `clean_logs` are called.

        Raises ValueError for a negative `timeouts_ms`.
        """
        if timeouts_ms < 0:
            raise ValueError(f"timeouts_ms must be at least 0, got {timeouts_ms}")
        self._host.advance(wall_ms, timeouts_ms)

    def delete_old_segments(self) -> None:
        """Run retention now: `retention.ms`, `retention.bytes`, and segments below the log start offset that
        DeleteRecords has set. As in Kafka, only whole segments below the high watermark are deleted.

        Raises NotRunningError.
        """
        self._host.delete_old_segments()

    def clean_logs(self) -> None:
        """Run the log cleaner now, on every topic with `cleanup.policy=compact` that is dirty enough
        (`min.cleanable.dirty.ratio`, `max.compaction.lag.ms`). As in Kafka the active segment is not cleaned;
        `segment.bytes` and `segment.ms` roll it early.

        Raises NotRunningError.
        """
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

    def _common_settings(self) -> dict[str, str]:
        """Return the settings that are the same for every broker."""
        found = {}
        if self._data is None:
            # The temporary directory is removed with the cluster, so an fsync has no use.
            found["odradek.sync"] = "false"
        if self._durable:
            found["odradek.sync"] = "always"
        if self._emulate is not None:
            found["odradek.emulate"] = self._emulate
        return found | dict(self._settings)

    def _start_broker(self, broker: int) -> None:
        self._check_broker_id(broker)
        if self._directory is None:
            raise NotRunningError
        if broker in self._running:
            raise AlreadyRunningError(broker)
        settings = broker_settings(
            self._common_settings(),
            self._directory,
            _HOST,
            self._ports[broker],
            self._racks[broker],
            broker_id=broker,
            brokers=len(self._ports),
        )
        self._record_addresses(self._host.start_broker(settings))

    def _record_addresses(self, addresses: Mapping[int, str]) -> None:
        for number, (broker, address) in enumerate(sorted(addresses.items())):
            index = number if len(self._ports) == 1 else broker
            self._ports[index] = parse_address(address)[1]
            self._running.add(broker)

    def _running_broker(self, broker: int) -> int:
        self._check_broker_id(broker)
        if broker not in self._running:
            raise NotRunningError(broker if self._running else None)
        return broker

    def _check_broker_id(self, broker: int) -> None:
        if len(self._ports) == 1:
            raise ValueError("a cluster of one broker takes no broker id: call stop, kill and start without it")
        if not 0 <= broker < len(self._ports):
            raise ValueError(f"broker must be one of 0 to {len(self._ports) - 1}, got {broker}")

    def _create_initial_topics(self) -> None:
        """Create the constructor's topics, except those that the data directory already has."""
        wanted = _as_mapping(self._topics)
        if wanted:
            with self._client() as client:
                existing = {topic.name for topic in client.metadata().topics}
            self.create_topics({name: partitions for name, partitions in wanted.items() if name not in existing})

    def _client(self) -> Client:
        return Client(self.bootstrap_servers)

    def _create(self, topics: list[CreateTopicsRequest.CreatableTopic]) -> None:
        with self._client() as client:
            response = client.call(CreateTopicsRequest(topics, _CREATE_TIMEOUT_MS), CreateTopicsResponse)
        for result in response.topics:
            if result.error_code != ErrorCode.NONE:
                raise KafkaError(result.error_code, f"topic {result.name!r}", result.error_message)


def _as_mapping(topics: Topics) -> Mapping[str, int]:
    return topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def _new_host(process: bool) -> Host:
    if process:
        from odradek.hosts.process import ProcessHost

        return ProcessHost()
    return ThreadHost()
