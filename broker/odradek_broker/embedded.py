"""The brokers of one process and their controller, whose metadata is a log in a data directory.

Owns starting and ending brokers, and fences those that end: the controller is in the same process, so it needs no
session timeout. A single broker has the metadata in its own first directory, as in Kafka's combined mode; several need
`metadata.log.dir`, because each of them may be killed.
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
StaticConfig = Mapping[str, str]
"""A broker's configuration as it is when the broker starts, under Kafka's names."""


class EmbeddedCluster:
    """`await EmbeddedCluster.start(...)` on a running loop; end the cluster with `stop`, or with `kill` as a crash."""

    def __init__(self, first: StaticConfig, environment: BrokerEnvironment) -> None:
        """`first` is the configuration of the first broker; the controller has it, too."""
        self._environment = environment
        self._config = config = BrokerConfig(first)
        self._timers = Timers(environment.clock, asyncio.get_running_loop(), environment.log)
        self._executor = DiskExecutor(self._timers, environment.log)
        self._emulation = Emulation(config.our_setting(EMULATE))
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
        static_configs: Sequence[StaticConfig],
        *,
        log: Logger | None = None,
        clock: Clock | None = None,
        environment: BrokerEnvironment | None = None,
    ) -> EmbeddedCluster:
        """Start one broker for each configuration; when this returns, all of them serve clients.

        Raises ValueError for an invalid configuration, LogDirectoryError for a directory that is in use or belongs to
        another program, OSError for an error of a port or a disk. Nothing stays open then."""
        first, *others = static_configs
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

    async def _open(self, static: StaticConfig) -> Node:
        node = await Node.open(static, self._environment, self._emulation.release)
        if node.id in self.nodes:
            await node.kill()
            raise ValueError(f"broker {node.id} is already running")
        self.nodes[node.id] = node
        return node

    async def _open_controller(self, nodes: Sequence[Node]) -> None:
        environment, config = self._environment, self._config
        path = config.optional_text("metadata.log.dir")
        directories = [directory for node in nodes for directory in node.directories]
        if path is not None and Path(path) not in config.log_dirs():
            self._metadata_directory = environment.open_directory(Path(path), config, self._executor)
            directories.append(self._metadata_directory)
        elif len(nodes) > 1:
            raise ValueError("several brokers need a metadata.log.dir that is not among their log.dirs")
        refuse_partitions_without_identity(directories)
        cluster_id = cluster_id_of(directories, config.static.get("cluster.id"), environment.randbytes)
        for node in nodes:
            ensure_meta_properties(node.directories, cluster_id, node.id, environment.randbytes)
        node_id = config.node_id
        if self._metadata_directory is not None:
            node_id = CONTROLLER_ID
            ensure_meta_properties([self._metadata_directory], cluster_id, node_id, environment.randbytes)
        emulation = self._emulation
        self._store = MetadataLogStore(
            self._metadata_directory or nodes[0].directories[0],
            node_id=node_id,
            cluster_id=cluster_id,
            initial=Levels(served_features(emulation.initial.finalized, TABLE.served)),
            start_disk_work=self._start_disk_work,
            run_flush=self._executor.run_and_wait if config.our_setting(SYNC) == "always" else None,
        )
        self.controller = Controller(
            self._store,
            node_id=config.node_id,
            static=config.static,
            emulation=emulation,
            features=served_features(emulation.supported, TABLE.served),
            rng=random.Random(environment.randbytes(32)),
            reporter=environment.log,
        )
        await self.controller.open()

    def _start_disk_work(self, work: Callable[[], None]) -> None:
        self._executor.run("metadata on disk", work)

    @property
    def ready(self) -> bool:
        """Whether every running broker serves metadata and its coordinators are loaded."""
        return bool(self.nodes) and all(node.ready for node in self.nodes.values())

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def start_broker(self, static: StaticConfig) -> Node:
        """Start a new broker, or one that was stopped or killed. Raises the same errors as `start`."""
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
        """Shut the broker down, after other brokers have become the leaders of its partitions, if they can. Raises
        KeyError for a broker that does not run."""
        node = self.nodes.pop(broker_id)
        await self.controller.submit(BrokerHeartbeatRequest(broker_id, node.broker.epoch, want_shut_down=True))
        await node.leave(grace_ms)
        await self.controller.fence_broker(broker_id)
        await node.close()

    async def kill_broker(self, broker_id: int) -> None:
        """End the broker as with kill -9 and fence it. Raises KeyError for a broker that does not run."""
        node = self.nodes.pop(broker_id)
        await node.kill()
        await self.controller.fence_broker(broker_id)

    def _directory_failed(self, node: Node) -> None:
        """End a broker without a healthy log directory, as Kafka does, and one that has lost the cluster's metadata."""
        can_continue = node.has_online_directory and (
            self._metadata_directory is not None or not node.directories[0].offline
        )
        if can_continue or node in self._ending:
            return
        self._environment.log.error("all log directories failed, stopping the broker", broker=node.id)
        self._ending[node] = task = asyncio.get_running_loop().create_task(self._end(node))
        task.add_done_callback(lambda done: self._ending.pop(node))

    async def _end(self, node: Node) -> None:
        if self.nodes.get(node.id) is node:
            with suppress(OSError, LogOfflineError, CorruptLogError):  # the metadata may be on the failed disk
                await self.kill_broker(node.id)
            if not self.nodes:
                self.ended.set()

    # -- the whole cluster --------------------------------------------------------------------------------------------

    async def stop(self, grace_ms: int = 5000) -> None:
        """Complete the requests in flight, flush the logs and write the markers of a clean shutdown. Idempotent."""
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
        """End as with kill -9: connections break, nothing more is flushed or written. Idempotent."""
        nodes, self.nodes = list(self.nodes.values()), {}
        if self._ending:
            await asyncio.wait(self._ending.values())
        self._timers.close()
        # The brokers first: no client must be served, nor send a request to the store, while this waits for threads.
        await asyncio.gather(*(node.kill() for node in nodes))
        await self._balancer.stop()
        await self._executor.stop()
        store, self._store = self._store, None
        if store is not None:
            store.close_without_writing()
        if self._metadata_directory is not None:
            self._metadata_directory.close_without_writing()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics; `topics` has the number of partitions by name, -1 for `num.partitions`. Raises ValueError for
        the first topic that the controller refuses."""
        wanted = [CreateTopicsRequest.CreatableTopic(name, count, -1) for name, count in topics.items()]
        created: CreateTopicsResponse = await self.controller.submit(CreateTopicsRequest(wanted))
        for result in created.topics:
            if result.error_code:
                raise ValueError(f"topic {result.name!r} cannot be created: {result.error_message}")

    def delete_old_segments(self) -> None:
        """Apply retention on every broker now."""
        for node in self.nodes.values():
            node.log_manager.delete_old_segments(node.broker.partitions)

    async def clean_logs(self) -> None:
        """Run the log cleaner on every broker now."""
        for node in list(self.nodes.values()):
            await node.log_manager.clean_logs()

    async def reset(self, topics: Mapping[str, int] | None = None) -> None:
        """Delete all topics, groups, producers and dynamic configurations; addresses and connections stay. Waiting
        requests end with an error. Clocks and faults stay as they are.

        `topics` (the number of partitions by name) are created in the same step, before a connected client can have one
        of them auto-created with another number of partitions.
        """
        # The controller applies changes in the order of the requests, so that no other request comes in between. The
        # old topics are deleted before the configurations, and the new ones begin with the new configurations.
        await asyncio.gather(
            self._delete_all_topics(), self.controller.forget_configs(), self.create_topics(topics or {})
        )
        for node in self.nodes.values():
            node.broker.clear_fetch_sessions()

    async def _delete_all_topics(self) -> None:
        deleted = await self.controller.delete_all_topics()
        for result in deleted.responses:
            if result.error_code:
                topic = self.controller.image.topics_by_id.get(Uuid(result.topic_id))
                name = result.name if topic is None else topic.name
                raise ValueError(f"topic {name!r} cannot be deleted: {result.error_message}")
