"""The brokers of one process and their controller, whose metadata is a log in a data directory.

Owns which brokers run, and that the controller hears of those that end: it lives in the same process, so that it need
not wait for a session to run out. One broker alone keeps the metadata in its own first directory, as Kafka's combined
mode does; several need `metadata.log.dir`, for any of them may be killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from odradek_broker.apis.table import TABLE
from odradek_broker.clock import Clock
from odradek_broker.config import EMULATE, SYNC, BrokerConfig
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.logger import Logger
from odradek_broker.metadata.cluster_ports import ClusterPorts
from odradek_broker.metadata.directory_identity import (
    cluster_id_of,
    ensure_meta_properties,
    refuse_partitions_without_identity,
)
from odradek_broker.metadata.embedded_source import EmbeddedSource
from odradek_broker.metadata.leader_balancer import LeaderBalancer
from odradek_broker.node import Node
from odradek_broker.timers import Timers
from odradek_controller.controller import Controller
from odradek_controller.levels import Emulation, Levels, served_features
from odradek_controller.metadata_log_store import MetadataLogStore
from odradek_log.directory import LogDirectory
from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.uuid import Uuid

CONTROLLER_ID = 3000
"""The node id of a controller that shares no directory with a broker, as in Kafka's documentation."""
Static = Mapping[str, str]


class EmbeddedCluster:
    """Start one with `await EmbeddedCluster.start(...)` on a running loop; end it with `stop`, or `kill` as a crash."""

    def __init__(self, first: Static, environment: BrokerEnvironment) -> None:
        self._environment = environment
        self._config = config = BrokerConfig(first)
        self._timers = Timers(environment.clock, asyncio.get_running_loop(), environment.log)
        self._executor = DiskExecutor(self._timers, environment.log)
        self._emulation = Emulation(config.setting(EMULATE))
        self._metadata_directory: LogDirectory | None = None
        self._store: MetadataLogStore | None = None
        self._balancer = LeaderBalancer(config, self._timers, environment.log)
        self._ending: dict[Node, asyncio.Task[None]] = {}
        self.ended = asyncio.Event()
        """Set when the last broker has ended because its disks failed."""
        self.controller: Controller
        self.nodes: dict[int, Node] = {}
        """The running brokers by id."""

    @classmethod
    async def start(
        cls,
        statics: Sequence[Static],
        *,
        log: Logger | None = None,
        clock: Clock | None = None,
        environment: BrokerEnvironment | None = None,
    ) -> EmbeddedCluster:
        """A cluster of which every broker answers when this returns; one configuration, with Kafka's names, for each.

        Raises ValueError for a configuration that cannot be served, LogDirectoryError for a data directory that is in
        use or not ours, OSError when a port or the disk refuses. Nothing stays open then."""
        first, *others = statics
        cluster = cls(first, environment or BrokerEnvironment.of(first, log=log, clock=clock))
        try:
            nodes = [await cluster._open(static) for static in (first, *others)]
            await cluster._open_controller(nodes)
            for node in nodes:
                await node.join(cluster._ports(), cluster._directory_failed)
            if len(nodes) > 1:
                cluster._balancer.start(cluster.controller.balance_leaders)
        except BaseException:
            await cluster.kill()
            raise
        return cluster

    def _ports(self) -> ClusterPorts:
        return ClusterPorts(EmbeddedSource(self.controller), self.controller)

    async def _open(self, static: Static) -> Node:
        node = await Node.open(static, self._environment, self._emulation.release)
        if node.id in self.nodes:
            await node.kill()
            raise ValueError(f"broker {node.id} runs already")
        self.nodes[node.id] = node
        return node

    async def _open_controller(self, nodes: Sequence[Node]) -> None:
        around, config = self._environment, self._config
        path = config.optional_text("metadata.log.dir")
        directories = [directory for node in nodes for directory in node.directories]
        if path is not None and Path(path) not in config.log_dirs():
            self._metadata_directory = around.open_directory(Path(path), config, self._executor)
            directories.append(self._metadata_directory)
        elif len(nodes) > 1:
            raise ValueError("several brokers need a metadata.log.dir that is none of their log.dirs")
        refuse_partitions_without_identity(directories)
        cluster_id = cluster_id_of(directories, config.static.get("cluster.id"), around.randbytes)
        for node in nodes:
            ensure_meta_properties(node.directories, cluster_id, node.id, around.randbytes)
        node_id = config.node_id
        if self._metadata_directory is not None:
            node_id = CONTROLLER_ID
            ensure_meta_properties([self._metadata_directory], cluster_id, node_id, around.randbytes)
        emulation = self._emulation
        self._store = MetadataLogStore(
            self._metadata_directory or nodes[0].directories[0],
            node_id=node_id,
            cluster_id=cluster_id,
            initial=Levels(served_features(emulation.initial.finalized, TABLE.served)),
            on_disk=self._on_disk,
            flush_now=self._executor.finish if config.setting(SYNC) == "always" else None,
        )
        self.controller = Controller(
            self._store,
            node_id=config.node_id,
            static=config.static,
            emulation=emulation,
            features=served_features(emulation.supported, TABLE.served),
            rng=random.Random(around.randbytes(32)),
            reporter=around.log,
        )
        await self.controller.open()

    def _on_disk(self, work: Callable[[], None]) -> None:
        self._executor.run("metadata on disk", work)

    @property
    def ready(self) -> bool:
        """Metadata and the group coordinators answer on every broker that runs."""
        return bool(self.nodes) and all(node.ready for node in self.nodes.values())

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def start_broker(self, static: Static) -> Node:
        """One more broker, or one that was stopped or killed. Raises as `start` does."""
        node = await self._open(static)
        try:
            ensure_meta_properties(
                node.directories, self.controller.image.cluster_id, node.id, self._environment.randbytes
            )
            await node.join(self._ports(), self._directory_failed)
        except BaseException:
            del self.nodes[node.id]
            await node.kill()
            raise
        return node

    async def stop_broker(self, broker_id: int, grace_ms: int = 5000) -> None:
        """A controlled shutdown: what others can lead, they lead before this one goes. KeyError if it does not run."""
        node = self.nodes.pop(broker_id)
        await self.controller.submit(BrokerHeartbeatRequest(broker_id, node.broker.epoch, want_shut_down=True))
        await node.leave(grace_ms)
        await self.controller.fence_broker(broker_id)
        await node.close()

    async def kill_broker(self, broker_id: int) -> None:
        """As kill -9 would end it; the controller, which lives on, sees it go. KeyError if it does not run."""
        node = self.nodes.pop(broker_id)
        await node.kill()
        await self.controller.fence_broker(broker_id)

    def _directory_failed(self, node: Node) -> None:
        """A broker without a disk ends, as Kafka's; so does one that has lost the metadata of its own cluster."""
        may_go_on = node.has_disk and (self._metadata_directory is not None or not node.directories[0].offline)
        if may_go_on or node in self._ending:
            return
        self._environment.log.error("a broker has lost its disks and ends", broker=node.id)
        self._ending[node] = task = asyncio.get_running_loop().create_task(self._end(node))
        task.add_done_callback(lambda done: self._ending.pop(node))

    async def _end(self, node: Node) -> None:
        if self.nodes.get(node.id) is node:
            with suppress(OSError, LogOfflineError, CorruptLogError):  # the metadata may have been on that disk, too
                await self.kill_broker(node.id)
            if not self.nodes:
                self.ended.set()

    # -- all of it ----------------------------------------------------------------------------------------------------

    async def stop(self, grace_ms: int = 5000) -> None:
        """Orderly: requests in flight are answered, logs flushed, the markers of a clean shutdown written.
        Idempotent."""
        nodes, self.nodes = list(self.nodes.values()), {}
        if self._ending:
            await asyncio.wait(self._ending.values())
        if self._store is None:
            return
        await asyncio.gather(*(node.leave(grace_ms) for node in nodes))
        await self._balancer.stop()
        self._timers.close()
        await self._executor.stop()
        self._store = None
        await self.controller.close()
        for node in nodes:
            await node.close()
        if self._metadata_directory is not None:
            self._metadata_directory.close(-1)

    async def kill(self) -> None:
        """As kill -9 would end the process: connections break, nothing is flushed or written any more. Idempotent."""
        nodes, self.nodes = list(self.nodes.values()), {}
        if self._ending:
            await asyncio.wait(self._ending.values())
        self._timers.close()
        # The brokers first: nobody must be served while what runs on threads is waited for, or ask the store for more.
        await asyncio.gather(*(node.kill() for node in nodes))
        await self._balancer.stop()
        await self._executor.stop()
        store, self._store = self._store, None
        if store is not None:
            store.abandon()
        if self._metadata_directory is not None:
            self._metadata_directory.abandon()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create them (name to partitions, -1: `num.partitions`). Raises ValueError for the first that is refused."""
        wanted = [CreateTopicsRequest.CreatableTopic(name, count, -1) for name, count in topics.items()]
        created: CreateTopicsResponse = await self.controller.submit(CreateTopicsRequest(wanted))
        for result in created.topics:
            if result.error_code:
                raise ValueError(f"topic {result.name!r} cannot be created: {result.error_message}")

    def delete_old_segments(self) -> None:
        """Retention now, on every broker, by the clock as it is."""
        for node in self.nodes.values():
            node.log_manager.delete_old_segments(node.broker.partitions)

    async def clean_logs(self) -> None:
        """The log cleaner's work now, on every broker, by the clock as it is."""
        for node in list(self.nodes.values()):
            await node.log_manager.clean_logs()

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
        for node in self.nodes.values():
            node.broker.forget_clients()

    async def _delete_all_topics(self) -> None:
        deleted = await self.controller.delete_all_topics()
        for result in deleted.responses:
            if result.error_code:
                topic = self.controller.image.topics_by_id.get(Uuid(result.topic_id))
                name = result.name if topic is None else topic.name
                raise ValueError(f"topic {name!r} cannot be deleted: {result.error_message}")
