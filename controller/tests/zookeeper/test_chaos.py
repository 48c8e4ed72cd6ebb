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
        self.pending: set[asyncio.Future[object]] = set()
        self.terms: dict[int, int] = {}

    def check_epochs(self) -> None:
        """Check that no two brokers are controllers in one epoch."""
        for member in self.cluster.members:
            controller = member.role.controller
            if controller is not None:
                known = self.terms.setdefault(controller.image.epoch, member.id)
                assert known == member.id, "two controllers in one epoch"

    async def step(self) -> None:
        member = self.rng.choice(self.cluster.members)
        faults = [self.drop] * 2 + [self.cut, self.heal, self.heal, self.expire, self.register_again]
        actions = [self.send_request] * 8 + faults + [self.tool]
        await self.rng.choice(actions)(member)
        for _ in range(self.rng.choice((0, 1, 3, 10, 50))):
            await asyncio.sleep(0)
        if self.rng.random() < 0.2:
            self.world.timers.advance(self.rng.randrange(3_000))
        self.check_epochs()

    async def send_request(self, _member: Member) -> None:
        """Send a random request to a random controller, perhaps a deposed one."""
        leaders = [member for member in self.cluster.members if member.role.controller]
        if not leaders:
            return
        controller = self.rng.choice(leaders).controller
        name = f"t{self.rng.randrange(4)}"
        replicas = self.rng.sample((1, 2, 3), self.rng.randrange(1, 4))
        move = AlterPartitionReassignmentsRequest.ReassignablePartition(0, replicas)
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name, self.rng.randrange(2, 5), None)
        reassignments = [AlterPartitionReassignmentsRequest.ReassignableTopic(name, [move])]
        change = self.rng.choice(
            [
                lambda: controller.submit(topics(name, partitions=2, factor=self.rng.randrange(1, 3))),
                lambda: controller.submit(DeleteTopicsRequest(topic_names=[name])),
                lambda: controller.submit(CreatePartitionsRequest([grow])),
                lambda: controller.submit(setting(2, name, segment_ms=str(600_000 + len(replicas)))),
                lambda: controller.submit(AlterPartitionReassignmentsRequest(topics=reassignments)),
                lambda: controller.submit(ElectLeadersRequest(election_type=0, topic_partitions=None)),
            ]
        )
        pending = asyncio.ensure_future(change())
        self.pending.add(pending)
        if self.rng.random() < 0.1:
            pending.cancel()

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
        self.world.server.expire(member.zk)  # type: ignore[arg-type]  # all clients of a DoubleWorld are doubles

    async def register_again(self, member: Member) -> None:
        """Register the broker again, unless it is registered."""
        if member.zk.connected:
            self.pending.add(asyncio.ensure_future(self.register(member)))

    async def register(self, member: Member) -> None:
        with suppress(ZooKeeperError):
            await member.register()

    async def heal_and_wait(self) -> None:
        for member in self.cluster.members:
            self.world.heal(member.zk)
        await self.world.until(lambda: all(member.zk.connected for member in self.cluster.members))
        await self.world.until(lambda: all(pending.done() for pending in self.pending))
        for pending in self.pending:
            if not pending.cancelled() and pending.exception() is not None:
                assert isinstance(pending.exception(), NotControllerError), pending.exception()
        await self.world.until(self.all_registered)
        await self.world.until(self.one_controller)

    async def all_registered(self) -> bool:
        """Register all brokers, some of whose sessions have expired; return whether a controller knows them all."""
        for member in self.cluster.members:
            await self.register(member)
        return any(len(m.role.controller.image.brokers) == 3 for m in self.cluster.members if m.role.controller)

    def one_controller(self) -> bool:
        """Return whether all brokers know the same controller, and only that broker is the controller."""
        known = {member.role.controller_id for member in self.cluster.members}
        leaders = {member.id for member in self.cluster.members if member.role.controller}
        return len(known) == 1 and known == leaders


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
        await chaos.heal_and_wait()
        chaos.check_epochs()
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
        await world.until(lambda: _deletions_done(cluster))
        await world.until(lambda: _image_is_stored(cluster))
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


async def _image_is_stored(cluster: ZooKeeperCluster) -> bool:
    """Return whether the readers have read the last changes."""
    with suppress(AssertionError):
        await same_as_stored(cluster)
        return True
    return False


async def _deletions_done(cluster: ZooKeeperCluster) -> bool:
    return await cluster.tool.children(paths.DELETE_TOPICS) == []
