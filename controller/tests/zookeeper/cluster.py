"""A cluster in ZooKeeper without brokers: only their registrations, and candidates for the controller.

A registered broker deletes its replicas immediately when the controller deletes a topic.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controller.tests.controller_kit import CLUSTER_ID, START_MS
from controller.tests.zookeeper.kit import DoubleWorld, World

from odradek_controller.controller import Controller
from odradek_controller.image import Endpoint, PartitionRegistration
from odradek_controller.zookeeper import bootstrap, paths
from odradek_controller.zookeeper.client import NoNodeError, ZooKeeper
from odradek_controller.zookeeper.controller import ZooKeeperController
from odradek_controller.zookeeper.controller_role import ControllerRole
from odradek_controller.zookeeper.znodes import BrokerZnode
from odradek_log.reporting import StandardReporter
from odradek_wire.messages.delete_topics import DeleteTopicsRequest


class Reports(StandardReporter):
    """A reporter that records warnings and errors."""

    def __init__(self) -> None:
        self.logged: list[str] = []

    def warning(self, event: str, /, **fields: object) -> None:
        self.logged.append(f"{event} {fields}")

    def error(self, event: str, /, **fields: object) -> None:
        self.logged.append(f"{event} {fields}")


class Member:
    """A broker's session, with its registration, and with its candidacy after `run_for_controller`."""

    def __init__(self, cluster: ZooKeeperCluster, broker_id: int, zk: ZooKeeper) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.zk = zk
        self.events: list[str] = []
        self.failed_log_dirs: list[list[int]] = []
        self.reports = Reports()
        self.role = ControllerRole(
            zk,
            broker_id,
            static=cluster.static,
            rng=random.Random(broker_id),
            wall_ms=lambda: START_MS,
            now_ms=lambda: cluster.now_ms,
            sleep=cluster.world.sleep,
            elected=self._elected,
            resigned=lambda: self.events.append("resigned"),
            log_dir_failed=self.failed_log_dirs.append,
            reporter=self.reports,
        )
        self.started = False

    def _elected(self, controller: ZooKeeperController) -> None:
        self.events.append(f"elected {controller.image.epoch}")

        def delete(_: object) -> None:
            for broker in controller.image.brokers.values():
                controller.replicas_deleted(broker, controller.deletions.remaining_replicas(broker.id), ())

        controller.deletions.on_deletion_started = delete
        controller.subscribe(delete)

    @property
    def controller(self) -> Controller:
        assert self.role.controller is not None
        return self.role.controller

    def run_for_controller(self) -> None:
        self.started = True
        self.role.start()

    async def register(self, rack: str | None = None) -> None:
        node = BrokerZnode((Endpoint("PLAINTEXT", "localhost", 9000 + self.id),), rack, timestamp_ms=START_MS)
        await self.zk.create(paths.broker(self.id), node.encode(), ephemeral=True)

    async def unregister(self) -> None:
        await self.zk.delete(paths.broker(self.id))


class ZooKeeperCluster:
    """The brokers 1, 2, … in `members`. `tool` is another client's session, without a broker."""

    def __init__(self, world: World, tool: ZooKeeper, static: dict[str, str]) -> None:
        self.world = world
        self.tool = tool
        self.static = static
        self.now_ms = 0
        self.members: list[Member] = []

    async def join(self, *, run_for_controller: bool = True, rack: str | None = None) -> Member:
        member = Member(self, len(self.members) + 1, await self.world.connect())
        self.members.append(member)
        await member.register(rack)
        if run_for_controller:
            member.run_for_controller()
        return member

    async def controller(self) -> Controller:
        """Wait for a controller and return it."""
        await self.world.until(lambda: any(member.role.controller for member in self.members))
        return next(member.role.controller for member in self.members if member.role.controller)

    async def delete(self, *names: str) -> None:
        """Delete the topics, and wait until the controller has deleted them."""
        controller = await self.controller()
        response = await controller.submit(DeleteTopicsRequest(topic_names=list(names)))
        assert [result.error_code for result in response.responses] == [0] * len(names)
        await self.until_image(lambda found: found.image.topics.keys().isdisjoint(names))

    async def until_image(self, holds: Callable[[Controller], bool]) -> None:
        await self.world.until(lambda: any(m.role.controller and holds(m.role.controller) for m in self.members))

    async def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        found = (await self.controller()).image.partition(topic, index)
        assert found is not None
        return found

    async def data(self, path: str) -> str:
        return (await self.tool.get(path))[0].decode()

    async def version(self, path: str) -> int:
        return (await self.tool.get(path))[1].version

    async def dump(self, under: str = "/") -> dict[str, bytes]:
        """Return the data of every znode by its path."""
        found: dict[str, bytes] = {}
        waiting = [under]
        while waiting:
            path = waiting.pop()
            try:
                found[path] = (await self.tool.get(path))[0]
                children = await self.tool.children(path)
            except NoNodeError:
                continue
            waiting += [f"{'' if path == '/' else path}/{name}" for name in children]
        return found


@asynccontextmanager
async def zookeeper_cluster(world: World | None = None, **static: str) -> AsyncIterator[ZooKeeperCluster]:
    """A new cluster. Names of settings have underscores instead of dots."""
    world = world or DoubleWorld()
    try:
        tool = await world.connect()
        await bootstrap.create_persistent_paths(tool)
        assert await bootstrap.cluster_id(tool, CLUSTER_ID) == CLUSTER_ID
        context = {name.replace("_", "."): value for name, value in static.items()}
        cluster = ZooKeeperCluster(world, tool, context)
        yield cluster
        for member in cluster.members:
            if member.started:
                await member.role.close()
    finally:
        await world.close()
