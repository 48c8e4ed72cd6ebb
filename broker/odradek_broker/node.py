"""One broker as a whole: its log directories, its server and its background work.

Owns the order in which the parts start and stop. Leaves the controller, and what several brokers of a process share, to
`embedded.py` and `zookeeper/broker_process.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek_broker.apis import api_versions
from odradek_broker.apis.table import TABLE
from odradek_broker.broker import Broker
from odradek_broker.config import METRICS_HTTP_PORT, BrokerConfig
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.loop_lag import LoopLag
from odradek_broker.metadata.cluster_ports import ClusterPorts
from odradek_broker.metadata.internal_topics import check_settings
from odradek_broker.network.listeners import Listener, parse_listeners
from odradek_broker.network.routes import Routes
from odradek_broker.network.server import Server
from odradek_broker.storage.log_manager import LogManager
from odradek_broker.timers import Timers
from odradek_controller.configs.table import Release
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek_wire.uuid import Uuid, random_uuid

if TYPE_CHECKING:
    from odradek_broker.network.http_port import HttpPort

DEFAULT_HOST = "localhost"
"""The advertised host of a listener on all interfaces, unless `advertised.listeners` has another."""


class Node:
    """`open` a node on a running loop, then `join`; end it with `leave` and `close`, or with `kill` as a crash."""

    broker: Broker
    server: Server
    log_manager: LogManager

    def __init__(self, config: BrokerConfig, environment: BrokerEnvironment) -> None:
        self.config = config
        self._environment = environment
        self._listeners = parse_listeners(config, DEFAULT_HOST, environment.channel_builders)
        self._channel_builders = {
            each.name: environment.channel_builders[each.protocol](each.name, config) for each in self._listeners
        }
        self.timers = Timers(environment.clock, asyncio.get_running_loop(), environment.log)
        self.executor = DiskExecutor(self.timers, environment.log)
        self._loop_lag: LoopLag | None = None
        self.directories: list[LogDirectory] = []
        self.http: HttpPort | None = None
        self._unsubscribe: Callable[[], None] = _nothing
        self._has_parts = False
        """Whether `join` has composed `broker`, `server` and `log_manager`."""
        self._ended = False

    @classmethod
    async def open(cls, static: Mapping[str, str], environment: BrokerEnvironment, release: Release) -> Node:
        """Lock and read the log directories. `static` is the configuration under Kafka's names, with `log.dirs` and
        `listeners`; `release` decides which settings topics may have.

        Raises ValueError for an invalid configuration, LogDirectoryError for a directory that is in use or belongs to
        another program. Nothing stays open then."""
        config = BrokerConfig(static)
        check_settings(config, release)
        node = cls(config, environment)
        try:
            for path in config.log_dirs():
                node.directories.append(environment.open_directory(path, config, node.executor))
        except BaseException:
            await node.kill()
            raise
        return node

    async def join(
        self,
        ports: ClusterPorts,
        directory_failed: Callable[[Node], None],
    ) -> None:
        """Register with the cluster and serve clients; other brokers too if the ports have `control_requests`.

        `directory_failed` is called after a log directory has gone offline: the owner of the node ends the node if it
        cannot continue.

        Raises OSError for an error of a port or a disk, ValueError if the controller refuses the broker. The node has
        ended then."""
        environment = self._environment
        try:
            self.broker = broker = Broker(
                config=self.config,
                ports=ports,
                environment=environment,
                directories=self.directories,
                timers=self.timers,
                executor=self.executor,
                directory_failed=lambda: None if self._ended else directory_failed(self),
            )
            apis = ports.source.apis
            table = (TABLE if apis is None else TABLE.with_unserved(apis)).without(ports.source.unserved_apis)
            routes = Routes(table, api_versions.unsupported_version_body())
            inter_broker_routes = (
                None
                if ports.control_requests is None
                else Routes(table, routes.unsupported_version_body, inter_broker=True)
            )
            self.server = Server(broker, routes, self._listeners, self._channel_builders, inter_broker_routes)
            self.log_manager = LogManager(
                config=lambda: broker.config,
                log_directories=broker.log_directories,
                replica_logs=broker.replica_logs,
                sealed_segments=broker.sealed_segments,
                partitions=broker.partitions,
                executor=self.executor,
                timers=self.timers,
                clock=environment.clock,
                log=environment.log,
                requests_handled=self.server.requests_handled,
            )
            self._has_parts = True
            await self.server.bind()
            broker.load()
            await self._register(ports)
            self._unsubscribe = ports.source.subscribe(broker.apply)
            await ports.channel.submit(BrokerHeartbeatRequest(broker.node_id, broker.epoch))
            self.log_manager.start(broker.maybe_shrink_isr)
            await self.server.serve()
            await self._open_http()
        except BaseException:
            await self.kill()
            raise

    async def _register(self, ports: ClusterPorts) -> None:
        request = BrokerRegistrationRequest(
            broker_id=self.broker.node_id,
            cluster_id=ports.source.image.cluster_id,
            incarnation_id=random_uuid(self._environment.randbytes),
            listeners=[
                BrokerRegistrationRequest.Listener(each.name, each.advertised_host, each.advertised_port, 0)
                for each in self.server.listeners
            ],
            features=[
                BrokerRegistrationRequest.Feature(name, levels.low, levels.high)
                for name, levels in ports.source.emulation.supported.items()
            ],
            rack=self.config.optional_text("broker.rack"),
            log_dirs=[
                Uuid(each.meta.directory_id)
                for each in self.directories
                if each.meta is not None and each.meta.directory_id
            ],
            previous_broker_epoch=self._previous_epoch(),
        )
        response: BrokerRegistrationResponse = await ports.channel.submit(request)
        if response.error_code:
            raise ValueError(
                f"the controller refused to register broker {self.id}: {ErrorCode(response.error_code).name}"
            )

    def _previous_epoch(self) -> int:
        """Return the broker epoch of the clean shutdown that closed all directories; -1 if there was none."""
        found = {each.previous_broker_epoch for each in self.directories}
        return found.pop() if len(found) == 1 else -1

    async def _open_http(self) -> None:
        """Open the port of `/metrics` and `/ready`, if `metrics.http.port` is set."""
        port = self.config.static.get(METRICS_HTTP_PORT)
        if port is not None:
            # Imported here, because most brokers have no such port.
            from odradek_broker.metrics import collect, render
            from odradek_broker.network.http_port import HttpPort

            self._loop_lag = loop_lag = LoopLag()
            self.http = HttpPort(
                lambda: self.ready,
                lambda: render(collect(self.broker, self.server, self.log_manager.cleaner, loop_lag.seconds)),
            )
            await self.http.start(self.listeners[0].host, int(port))

    def _close_http(self) -> None:
        if self.http is not None:
            self.http.close()

    @property
    def id(self) -> int:
        return self.config.node_id

    @property
    def listeners(self) -> list[Listener]:
        return self.server.listeners

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.server.listeners[0].port

    @property
    def has_online_directory(self) -> bool:
        """Whether at least one log directory is online."""
        return any(not directory.offline for directory in self.directories)

    @property
    def ready(self) -> bool:
        """Whether the broker serves metadata and its coordinators are loaded."""
        return self._has_parts and not self._ended and self.broker.coordinators_ready

    async def leave(self, grace_ms: int) -> None:
        """Complete the requests that wait, then stop serving and replicating. If other brokers continue, the
        caller does the broker's controlled shutdown first."""
        self._close_http()
        self.broker.purgatory.expire_all()
        self.broker.stop_coordinators()  # completes requests that wait for a rebalance or a transaction
        await self.server.stop(grace_ms)
        self._unsubscribe()
        await self.broker.stop_replication()

    async def close(self) -> None:
        """Flush the logs and write the markers of a clean shutdown, after `leave`. Idempotent."""
        if self._ended:
            return
        self._ended = True
        await self._stop_background()
        epoch = self.broker.epoch

        def write() -> None:
            self.log_manager.write_high_watermarks()
            for directory in self.directories:
                directory.close(epoch)

        # On a thread: the other brokers of the process continue meanwhile.
        await asyncio.to_thread(write)

    async def _stop_background(self) -> None:
        self.timers.close()
        self.executor.stop_accepting()
        if self._loop_lag is not None:
            self._loop_lag.stop()
        if self._has_parts:
            await self.log_manager.stop()
        await self.executor.stop()

    async def kill(self) -> None:
        """End as with kill -9: connections break, nothing more is flushed or written. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._close_http()
        if self._has_parts:
            self.server.abort()
            self._unsubscribe()
            await self.broker.stop_replication(killed=True)
        await self._stop_background()
        for directory in self.directories:
            directory.close_without_writing()


def _nothing() -> None:
    """Stand in for `_unsubscribe` before `join` has subscribed."""
