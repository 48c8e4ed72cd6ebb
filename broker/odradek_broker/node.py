"""A whole node in one process: controller, one broker, data directory, listeners. The composition root.

Here, and nowhere else in this package, the real clock, disk, randomness and event loop are known. The kit starts nodes;
tests start them on port 0 and a temporary directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek_broker.apis import api_versions
from odradek_broker.apis.table import TABLE
from odradek_broker.background import Background
from odradek_broker.broker import Broker
from odradek_broker.clock import Clock
from odradek_broker.config import EMULATE, HTTP_PORT, SYNC, BrokerConfig
from odradek_broker.network.listeners import Listener, parse_listeners
from odradek_broker.network.routes import Routes
from odradek_broker.network.server import Server
from odradek_broker.report import Logger
from odradek_broker.timers import Timers
from odradek_controller.controller import Controller
from odradek_controller.embedded import EmbeddedStore
from odradek_controller.levels import Emulation
from odradek_log.directory import LogDirectory
from odradek_log.disk import Disk, RealDisk
from odradek_log.errors import LogDirectoryError
from odradek_log.meta_properties import MetaProperties
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.uuid import Uuid, random_uuid, uuid_to_text

if TYPE_CHECKING:
    from odradek_broker.network.http import HttpPort

DEFAULT_HOST = "localhost"
"""What is advertised for a listener on every interface, when `advertised.listeners` does not say otherwise."""
OPEN_FILES = 512


class Node:
    """Start one with `await Node.start(...)` on a running loop; end it with `stop`, or with `kill` as a crash would."""

    def __init__(
        self,
        broker: Broker,
        server: Server,
        controller: Controller,
        store: EmbeddedStore,
        directories: list[LogDirectory],
        background: Background,
    ) -> None:
        self.broker = broker
        self.server = server
        self.controller = controller
        self._store = store
        self._directories = directories
        self._background = background
        self._stopped = False
        self.http: HttpPort | None = None

    @classmethod
    async def start(
        cls,
        config: Mapping[str, str],
        *,
        log: Logger | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        randbytes: Callable[[int], bytes] = os.urandom,
    ) -> Node:
        """A node that answers when this returns. `config` holds Kafka's names; `log.dirs` and `listeners` must be
        there.

        Raises ValueError for a configuration that cannot be served, LogDirectoryError for a data directory that is in
        use or not ours, OSError when a port or the disk refuses. Nothing stays open then."""
        log = log or _standard_log()
        broker_config = BrokerConfig(config)
        emulation = Emulation(broker_config.setting(EMULATE))
        listeners = parse_listeners(broker_config, DEFAULT_HOST)
        clock = clock or Clock()
        disk = disk or RealDisk(sync=broker_config.setting(SYNC) == "true")
        timers = Timers(clock, asyncio.get_running_loop(), log)
        background = Background(timers, clock, log)
        directories: list[LogDirectory] = []
        server: Server | None = None
        store: EmbeddedStore | None = None
        try:
            for path in broker_config.log_dirs():
                directories.append(_open_directory(path, broker_config, clock, disk, background, log))
            cluster_id = _identify(directories, broker_config, randbytes)
            store = EmbeddedStore(
                directories[0],
                node_id=broker_config.node_id,
                cluster_id=cluster_id,
                emulation=emulation,
                on_disk=lambda work: background.run("metadata on disk", work),
            )
            controller = Controller(
                store, node_id=broker_config.node_id, static=config, emulation=emulation, reporter=log
            )
            await controller.open()
            broker = Broker(broker_config, controller, directories, clock, timers, background, randbytes, log)
            table = TABLE if emulation.apis is None else TABLE.answering_all_of(emulation.apis)
            server = Server(broker, Routes(table, api_versions.downgrade()), listeners)
            await server.bind()
            broker.load()
            await _register(broker, server.listeners, directories, randbytes)
            controller.subscribe(broker.apply)
            await controller.unfence_broker(broker.node_id)
            background.start(lambda: broker.config, broker.hosting, broker.partitions)
            await server.serve()
            node = cls(broker, server, controller, store, directories, background)
            await node.open_http()
        except BaseException:
            if server is not None:
                await server.stop(0)
            timers.close()
            await background.stop()
            if store is not None:
                store.abandon()
            for directory in directories:
                directory.abandon()
            raise
        return node

    async def open_http(self) -> None:
        """The port of `/metrics` and `/ready`, if it is asked for."""
        port = self.broker.config.static.get(HTTP_PORT)
        if port is not None:
            # Only who asks for the port pays for loading it.
            from odradek_broker.metrics import collect, render
            from odradek_broker.network.http import HttpPort

            self._background.watch_loop()
            self.http = HttpPort(
                lambda: self.ready,
                lambda: render(collect(self.broker, self.server, self._background.loop_lag_s)),
            )
            await self.http.start(self.listeners[0].host, int(port))

    @property
    def listeners(self) -> list[Listener]:
        return self.server.listeners

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.server.listeners[0].port

    @property
    def ready(self) -> bool:
        """Metadata and the group coordinator answer."""
        return not self._stopped and self.broker.groups_ready

    async def stop(self, grace_ms: int = 5000) -> None:
        """Orderly: requests in flight are answered, logs flushed, the marker of a clean shutdown written.
        Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        broker = self.broker
        if self.http is not None:
            self.http.close()
        broker.purgatory.expire_all()
        # Members that wait for a rebalance are answered too: nobody would end it any more.
        await broker.stop_groups()
        await self.server.stop(grace_ms)
        broker.timers.close()
        await self._background.stop()
        epoch = broker.epoch
        self._background.checkpoint_high_watermarks(broker.hosting, broker.partitions)
        await self.controller.close()
        for directory in self._directories:
            directory.close(epoch)

    async def kill(self) -> None:
        """As kill -9 would end the process: connections break, nothing is flushed or written any more."""
        if self._stopped:
            return
        self._stopped = True
        if self.http is not None:
            self.http.close()
        self.server.abort()
        self.broker.timers.close()
        await self._background.stop()
        self._store.abandon()
        for directory in self._directories:
            directory.abandon()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create them (name to partitions, -1: `num.partitions`). Raises ValueError for the first that is refused."""
        wanted = [CreateTopicsRequest.CreatableTopic(name, count, -1) for name, count in topics.items()]
        created = await self.controller.create_topics(CreateTopicsRequest(wanted))
        for result in created.topics:
            if result.error_code:
                raise ValueError(f"topic {result.name!r} cannot be created: {result.error_message}")

    async def reset(self, topics: Mapping[str, int] | None = None) -> None:
        """All topics, groups, producers and dynamic configurations are gone; address and connections stay. What waits
        ends with an error. Clocks and faults are left to whoever moved and ordered them.

        `topics` (name to partitions) are there again with the same breath: a connected client must not come first and
        have one of them created for it, with another number of partitions.
        """
        # The controller takes changes in the order in which they are asked for: these are neighbours. Topics of before
        # go first, so that none need be told of the configuration; those of after come last, to begin with it.
        await asyncio.gather(
            self._delete_all_topics(), self.controller.forget_configs(), self.create_topics(topics or {})
        )
        self.broker.forget_clients()

    async def _delete_all_topics(self) -> None:
        """Looks for them when it runs: what is created until then goes, too."""
        topics = [
            DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.id)
            for topic in self.controller.image.topics.values()
        ]
        deleted = await self.controller.delete_topics(DeleteTopicsRequest(topics=topics))
        for result in deleted.responses:
            if result.error_code:
                topic = self.controller.image.topics_by_id.get(Uuid(result.topic_id))
                name = result.name if topic is None else topic.name
                raise ValueError(f"topic {name!r} cannot be deleted: {result.error_message}")


def _standard_log() -> Logger:
    import structlog

    return structlog.get_logger("odradek")  # type: ignore[no-any-return]


def _open_directory(
    path: os.PathLike[str], config: BrokerConfig, clock: Clock, disk: Disk, background: Background, log: Logger
) -> LogDirectory:
    return LogDirectory.open(
        os.fspath(path),
        wall_ms=clock.wall_ms,
        later=background.later,
        disk=disk,
        reporter=log,
        producer_expiration_ms=config.integer("producer.id.expiration.ms"),
        open_files=OPEN_FILES,
    )


def _identify(directories: list[LogDirectory], config: BrokerConfig, randbytes: Callable[[int], bytes]) -> str:
    """The cluster that these directories belong to; fresh ones are given an identity."""
    known = [directory.meta for directory in directories if directory.meta is not None]
    clusters = {meta.cluster_id for meta in known if meta.cluster_id}
    if len(clusters) > 1:
        raise LogDirectoryError(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")
    for directory in directories:
        meta = directory.meta
        if meta is not None and meta.node_id not in (None, config.node_id):
            raise LogDirectoryError(f"{directory.path} belongs to node {meta.node_id}, this is node {config.node_id}")
    wanted = config.static.get("cluster.id")
    cluster_id = clusters.pop() if clusters else wanted or uuid_to_text(random_uuid(randbytes))
    if wanted and wanted != cluster_id:
        raise LogDirectoryError(f"the log directories belong to cluster {cluster_id}, not to {wanted}")
    for directory in directories:
        if directory.meta is None or directory.meta.directory_id is None:
            directory.write_meta(MetaProperties(1, cluster_id, config.node_id, random_uuid(randbytes)))
    return cluster_id


async def _register(
    broker: Broker, listeners: list[Listener], directories: list[LogDirectory], randbytes: Callable[[int], bytes]
) -> None:
    request = BrokerRegistrationRequest(
        broker_id=broker.node_id,
        cluster_id=broker.controller.image.cluster_id,
        incarnation_id=random_uuid(randbytes),
        listeners=[
            BrokerRegistrationRequest.Listener(each.name, each.advertised_host, each.advertised_port, 0)
            for each in listeners
        ],
        features=[
            BrokerRegistrationRequest.Feature(name, levels.low, levels.high)
            for name, levels in broker.emulation.supported.items()
        ],
        rack=broker.config.optional_text("broker.rack"),
        log_dirs=[
            Uuid(each.meta.directory_id) for each in directories if each.meta is not None and each.meta.directory_id
        ],
    )
    response = await broker.controller.register_broker(request)
    if response.error_code:
        raise ValueError(f"this broker cannot join its own cluster: {ErrorCode(response.error_code).name}")
