"""A process of ZooKeeper mode: one broker, which is also a candidate for the controller.

The composition root of this mode, as `embedded` is without ZooKeeper. Owns the order in which the broker, its
registration and its candidacy begin and end. The caller opens the connection to ZooKeeper; `stop` closes it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace

from odradek_broker.environment import BrokerEnvironment
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.metadata.cluster_ports import ClusterPorts
from odradek_broker.metadata.directory_identity import cluster_id_of, ensure_meta_properties_over_zookeeper
from odradek_broker.metadata.leader_balancer import LeaderBalancer
from odradek_broker.node import Node
from odradek_broker.zookeeper.broker_znode import BrokerZnodeRegistration
from odradek_broker.zookeeper.config_watch import Configs, ConfigWatch, Entities
from odradek_broker.zookeeper.config_writer import ConfigWriter
from odradek_broker.zookeeper.consumer_offsets import ConsumerOffsets
from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_broker.zookeeper.control_requests import ControlRequestHandler
from odradek_broker.zookeeper.controller_channel import ZooKeeperControllerChannel
from odradek_broker.zookeeper.controller_channel_manager import BACKOFF_MS, ControllerChannelManager
from odradek_broker.zookeeper.log_dir_events import LogDirEvents
from odradek_broker.zookeeper.metadata_source import ZooKeeperSource
from odradek_controller.commands.context import CommandContext
from odradek_controller.configs.table import Release
from odradek_controller.image import BrokerRegistration, ClusterImage, Endpoint
from odradek_controller.levels import Emulation
from odradek_controller.zookeeper import acl_znodes
from odradek_controller.zookeeper.bootstrap import cluster_id, create_persistent_paths
from odradek_controller.zookeeper.client import ZooKeeper
from odradek_controller.zookeeper.controller import ZooKeeperController
from odradek_controller.zookeeper.controller_role import ControllerRole
from odradek_controller.zookeeper.load import zookeeper_levels
from odradek_controller.zookeeper.znodes import BrokerZnode
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest

DEFAULTS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "18000",
    "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "5000",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
"""Kafka 3.9's defaults of settings that 4.3 does not have, or that have another default in an embedded cluster."""

_SESSION_END_SLACK_MS = 10_000
"""A session may end later than its timeout: after a tick of the server, or after an election among the servers."""


class BrokerProcess:
    """The broker and its candidacy. `start` it on a running loop; end it with `stop`, or with `kill` as after a
    crash."""

    def __init__(self, node: Node, zk: ZooKeeper, environment: BrokerEnvironment) -> None:
        self.node = node
        self._zk = zk
        self._environment = environment
        self._config = config = node.config
        self._rng = random.Random(environment.randbytes(32))
        self._log = environment.log.bind(broker=node.id)
        self._channel_manager: ControllerChannelManager | None = None
        self._balancer = LeaderBalancer(config, node.timers, self._log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        """Set when the broker has ended because all its log directories failed."""
        self.adapter = ControlRequestAdapter(ClusterImage(offset=0, levels=zookeeper_levels({})), node.id)
        self.config_watch = ConfigWatch(zk, self._configs_changed, node.timers.sleep, self._log)
        self.source = ZooKeeperSource(self.adapter, node.timers.sleep, self._log)
        self.channel = ZooKeeperControllerChannel(
            adapter=self.adapter,
            source=self.source,
            connection=self._channel("the controller", self._controller_address),
            register=self._register,
            sleep=node.timers.sleep,
        )
        self._log_dir_events = LogDirEvents(zk, node.id, node.timers.sleep, self._log)
        self.control_requests = ControlRequestHandler(
            adapter=self.adapter,
            config_watch=self.config_watch,
            source=self.source,
            submit_local=self.channel.submit_local,
            broker=lambda: node.broker,
            log=self._log,
        )
        self.channel.config_writer = ConfigWriter(
            zk,
            self.config_watch,
            lambda: self.adapter.image,
            CommandContext(
                node_id=node.id,
                randbytes=self._rng.randbytes,
                randbelow=self._rng.randrange,
                static=config.static,
                emulation=Emulation.KAFKA_3_9,
            ),
            self.control_requests.configs_changed,
        )
        self.registration = BrokerZnodeRegistration(
            zk,
            node.id,
            timeout_ms=config.integer("zookeeper.session.timeout.ms") + _SESSION_END_SLACK_MS,
            sleep=node.timers.sleep,
            wall_ms=environment.clock.wall_ms,
            renewed=self.control_requests.registered_again,
            log=self._log,
        )
        self.role = ControllerRole(
            zk,
            node.id,
            static=config.static,
            rng=self._rng,
            wall_ms=environment.clock.wall_ms,
            now_ms=environment.clock.monotonic_ms,
            sleep=node.timers.sleep,
            elected=self._elected,
            resigned=self._resigned,
            log_dir_failed=self._log_dir_failed,
            reporter=environment.log,
        )

    @classmethod
    async def start(cls, static: Mapping[str, str], zk: ZooKeeper, environment: BrokerEnvironment) -> BrokerProcess:
        """Start a broker, and return it when it serves requests; there may be no controller yet.

        Raises ValueError for an unsupported configuration, or if another broker has the id; LogDirectoryError for a log
        directory that is in use or belongs to another broker; OSError for a port or a disk; and the errors of
        `ZooKeeper`. After an error only the connection to ZooKeeper stays open."""
        node = await Node.open({**DEFAULTS, **static}, environment, Release.KAFKA_3_9)
        process = cls(node, zk, environment)
        try:
            await process._join()
        except BaseException:
            await process._abandon()
            raise
        return process

    async def _join(self) -> None:
        node = self.node
        await create_persistent_paths(self._zk)
        proposed = cluster_id_of(node.directories, self._config.static.get("cluster.id"), self._environment.randbytes)
        stored = await cluster_id(self._zk, proposed)
        ensure_meta_properties_over_zookeeper(node.directories, stored, node.id)
        self.adapter.image = replace(self.adapter.image, cluster_id=stored)
        configs, entities = await self.config_watch.start()
        self.adapter.configs_changed(configs)
        await self.control_requests.entities_changed(entities)
        acls = await acl_znodes.stored_patterns(self._zk)
        if acls:
            self._log.warning("ACLs are not enforced by this broker", resources=len(acls))
        ports = ClusterPorts(
            self.source,
            self.channel,
            self.control_requests,
            ConsumerOffsets(self._zk),
            self._log_dir_events.notify,
        )
        await node.join(ports, self._directory_failed)
        self.role.start()

    async def _configs_changed(self, configs: Configs, entities: Entities) -> None:
        await self.control_requests.configs_changed(configs)
        await self.control_requests.entities_changed(entities)

    async def _register(self, request: BrokerRegistrationRequest) -> int:
        listeners = tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners)
        return await self.registration.register(BrokerZnode(listeners, request.rack))

    # -- channels to other brokers ------------------------------------------------------------------------------------

    @property
    def _control_listener(self) -> str:
        return self._config.text("control.plane.listener.name").upper() or self._config.inter_broker_listener

    def _controller_address(self) -> Endpoint | None:
        broker = self.adapter.image.brokers.get(self.role.controller_id)
        return None if broker is None else broker.endpoint(self._control_listener)

    def _channel(self, destination: str, endpoint: Callable[[], Endpoint | None]) -> BrokerChannel:
        return BrokerChannel(
            destination,
            endpoint,
            client_id=str(self.node.id),
            timeout_s=self._config.integer("controller.socket.timeout.ms") / 1000,
            backoff_ms=BACKOFF_MS,
        )

    def _broker_channel(self, registration: BrokerRegistration) -> BrokerChannel:
        return self._channel(f"broker {registration.id}", lambda: registration.endpoint(self._control_listener))

    # -- as the controller --------------------------------------------------------------------------------------------

    def _elected(self, controller: ZooKeeperController) -> None:
        self._log.info("elected as the controller", epoch=controller.image.epoch)
        self.channel.local = controller
        self._channel_manager = ControllerChannelManager(
            self.node.id,
            controller,
            self._broker_channel,
            self.node.timers.sleep,
            self._log,
        )
        controller.subscribe(self._channel_manager.apply)
        self._balancer.start(controller.balance_leaders)

    def _log_dir_failed(self, broker_ids: list[int]) -> None:
        """Request the lost replicas of these brokers. A new controller requests those of all brokers anyway."""
        if self._channel_manager is not None:
            self._channel_manager.request_lost_replicas(broker_ids)

    def _resigned(self) -> None:
        self._log.info("resigned as the controller")
        self.channel.local = None
        manager, self._channel_manager = self._channel_manager, None
        if manager is not None:
            self._create_task(manager.close())
        self._balancer.cancel()

    def _create_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def stop(self, grace_ms: int = 5000) -> None:
        """Shut down: let the controller elect other leaders, complete requests in flight, delete the broker's znode,
        close the log directories."""
        if self._config.boolean("controlled.shutdown.enable"):
            await self._controlled_shutdown()
        await self.node.leave(grace_ms)
        await self.role.close()
        await self.registration.close()
        await self.config_watch.close()
        await self._log_dir_events.close()
        self.channel.close()
        await self._until_tasks_done()
        await self.node.close()
        await self._zk.close()

    async def _controlled_shutdown(self) -> None:
        """Ask the controller to elect other leaders, with up to `controlled.shutdown.max.retries` retries."""
        retries = self._config.integer("controlled.shutdown.max.retries")
        for attempt in range(retries + 1):
            request = ControlledShutdownRequest(self.node.id, self.adapter.broker_epoch)
            response = await self.channel.submit(request)
            if not response.error_code and not response.remaining_partitions:
                return
            if attempt < retries:
                await self.node.timers.sleep(self._config.integer("controlled.shutdown.retry.backoff.ms"))
        self._log.warning("controlled shutdown failed, shutting down without it")

    async def kill(self) -> None:
        """End as after kill -9: close connections, write nothing more to disk or ZooKeeper. The session stays."""
        self.channel.local = None
        if self._channel_manager is not None:
            await self._channel_manager.close()
        await self._abandon()
        self._create_task(self.role.close())

    async def _abandon(self) -> None:
        await self._balancer.stop()
        self.registration.abandon()
        await self.config_watch.close()
        await self._log_dir_events.close()
        self.channel.close()
        await self._until_tasks_done()
        await self.node.kill()

    def _directory_failed(self, node: Node) -> None:
        if not node.has_online_directory and self._ending is None:
            self._log.error("all log directories failed, stopping the broker")
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        """End without a clean shutdown, because there is no log directory to close."""
        await self.kill()
        self.ended.set()

    async def _until_tasks_done(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
