"""Controllers under random lost connections and expired sessions, by seed: one controller remains."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress

import pytest
from controller.tests.controller_kit import topics
from controller.tests.zookeeper.cluster import Member, ZooKeeperCluster, zookeeper_cluster
from controller.tests.zookeeper.kit import DoubleWorld
from controller.tests.zookeeper.requests import same_as_stored, setting

from odradek_controller.image import PartitionRegistration
from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import ZooKeeperError
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest

SEEDS = int(os.environ.get("ODRADEK_EXAMPLES", "20"))
STEPS = 60


class Chaos:
    """Random actions of clients, tools and brokers, and random faults."""

    def __init__(self, cluster: ZooKeeperCluster, world: DoubleWorld, rng: random.Random) -> None:
        self.cluster = cluster
        self.world = world
        self.rng = rng
        self.asking: set[asyncio.Future[object]] = set()
        self.terms: dict[int, int] = {}

    def watch(self) -> None:
        """No two brokers are controllers in one epoch."""
        for member in self.cluster.members:
            controller = member.role.controller
            if controller is not None:
                known = self.terms.setdefault(controller.image.epoch, member.id)
                assert known == member.id, "two controllers in one epoch"

    async def step(self) -> None:
        member = self.rng.choice(self.cluster.members)
        deeds = [self.ask] * 8 + [self.drop] * 2 + [self.cut, self.heal, self.heal, self.expire, self.bounce, self.tool]
        await self.rng.choice(deeds)(member)
        for _ in range(self.rng.choice((0, 1, 3, 10, 50))):
            await asyncio.sleep(0)
        if self.rng.random() < 0.2:
            self.world.timers.advance(self.rng.randrange(3_000))
        self.watch()

    async def ask(self, _member: Member) -> None:
        """Return any controller, even a deposed one."""
        leaders = [member for member in self.cluster.members if member.role.controller]
        if not leaders:
            return
        controller = self.rng.choice(leaders).controller
        name = f"t{self.rng.randrange(4)}"
        some = self.rng.sample((1, 2, 3), self.rng.randrange(1, 4))
        move = AlterPartitionReassignmentsRequest.ReassignablePartition(0, some)
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name, self.rng.randrange(2, 5), None)
        moves = [AlterPartitionReassignmentsRequest.ReassignableTopic(name, [move])]
        change = self.rng.choice(
            [
                lambda: controller.submit(topics(name, partitions=2, factor=self.rng.randrange(1, 3))),
                lambda: controller.submit(DeleteTopicsRequest(topic_names=[name])),
                lambda: controller.submit(CreatePartitionsRequest([grow])),
                lambda: controller.submit(setting(2, name, segment_ms=str(600_000 + len(some)))),
                lambda: controller.submit(AlterPartitionReassignmentsRequest(topics=moves)),
                lambda: controller.submit(ElectLeadersRequest(election_type=0, topic_partitions=None)),
            ]
        )
        asked = asyncio.ensure_future(change())
        self.asking.add(asked)
        if self.rng.random() < 0.1:
            asked.cancel()

    async def tool(self, _member: Member) -> None:
        with suppress(ZooKeeperError):
            await self.cluster.tool.create(paths.delete_topic(f"t{self.rng.randrange(4)}"))

    async def drop(self, member: Member) -> None:
        self.world.drop(member.zk)

    async def cut(self, member: Member) -> None:
        self.world.cut(member.zk)

    async def heal(self, member: Member) -> None:
        self.world.heal(member.zk)

    async def expire(self, member: Member) -> None:
        self.world.server.expire(member.zk)  # type: ignore[arg-type]  # of this world all clients are doubles

    async def bounce(self, member: Member) -> None:
        """A broker registers again if it is not there."""
        if member.zk.connected:
            self.asking.add(asyncio.ensure_future(self.register(member)))

    async def register(self, member: Member) -> None:
        with suppress(ZooKeeperError):
            await member.register()

    async def settle(self) -> None:
        for member in self.cluster.members:
            self.world.heal(member.zk)
        await self.world.until(lambda: all(member.zk.connected for member in self.cluster.members))
        await self.world.until(lambda: all(asked.done() for asked in self.asking))
        for asked in self.asking:
            if not asked.cancelled() and asked.exception() is not None:
                assert isinstance(asked.exception(), NotControllerError), asked.exception()
        await self.world.until(self.all_registered)
        await self.world.until(self.one_controller)

    async def all_registered(self) -> bool:
        """Wait until all brokers are registered and the controller knows. A session may have expired only now."""
        for member in self.cluster.members:
            await self.register(member)
        return any(len(m.role.controller.image.brokers) == 3 for m in self.cluster.members if m.role.controller)

    def one_controller(self) -> bool:
        """Wait until all agree on the controller, and it has completed all requests."""
        seen = {member.role.controller_id for member in self.cluster.members}
        leaders = {member.id for member in self.cluster.members if member.role.controller}
        return len(seen) == 1 and seen == leaders


def _is_sound(partition: PartitionRegistration) -> bool:
    return set(partition.isr) <= set(partition.replicas) and partition.leader in (*partition.isr, -1)


@pytest.mark.parametrize("latency_ms", [0, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_one_controller_remains_after_random_faults(seed: int, latency_ms: int) -> None:
    world = DoubleWorld(latency_ms)
    async with zookeeper_cluster(world) as cluster:
        for _ in range(3):
            await cluster.join()
        chaos = Chaos(cluster, world, random.Random(seed))
        for _ in range(STEPS):
            await chaos.step()
        await chaos.settle()
        chaos.watch()
        controller = await cluster.controller()
        await controller.submit(topics("last"))
        # No replica is copied here, and a topic in a reassignment is not deleted.
        stay = [
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                topic.name,
                [
                    AlterPartitionReassignmentsRequest.ReassignablePartition(index, None)
                    for index, partition in enumerate(topic.partitions)
                    if partition.reassigning
                ],
            )
            for topic in controller.image.topics.values()
        ]
        await controller.submit(AlterPartitionReassignmentsRequest(topics=stay))
        await world.until(lambda: _granted(cluster))
        await world.until(lambda: _seen(cluster))
        image = await same_as_stored(cluster)
        assert "last" in image.topics
        assert all(_is_sound(partition) for topic in image.topics.values() for partition in topic.partitions)
        tree = await cluster.dump("/brokers/topics")
        states = {
            paths.state(topic.name, index) for topic in image.topics.values() for index in range(len(topic.partitions))
        }
        assert {path for path in tree if path.endswith("/state")} == states
        configured = {f"/config/topics/{name}" for name in image.topics}
        assert {path for path in await cluster.dump("/config/topics") if path.count("/") == 3} == configured


async def _seen(cluster: ZooKeeperCluster) -> bool:
    """Wait until the readers have read the last changes."""
    with suppress(AssertionError):
        await same_as_stored(cluster)
        return True
    return False


async def _granted(cluster: ZooKeeperCluster) -> bool:
    return await cluster.tool.children(paths.DELETE_TOPICS) == []
