"""A log directory fails: other brokers lead its partitions, and the broker serves those in its other directories."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog
from broker.tests.three_brokers import Connect, Trio
from log.tests.failing_disk import FailingDisk

from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.environment import BrokerEnvironment
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from odradek_wire.messages.metadata import MetadataRequest

MakeBatch = Callable[..., bytes]


class FailingTrio(Trio):
    """Each broker has two log directories, `a` and `b`; all brokers share a disk of which parts can fail."""

    def static(self, broker: int) -> dict[str, str]:
        return {**super().static(broker), "log.dirs": ",".join(f"{self.path}/broker-{broker}-{name}" for name in "ab")}

    async def start(self) -> None:
        self.disk = FailingDisk(self.path)
        settings = [self.static(broker) for broker in range(3)]
        around = BrokerEnvironment.of(settings[0], log=structlog.get_logger("test"), clock=self.clock, disk=self.disk)
        self.cluster = await EmbeddedCluster.start(settings, environment=around)

    def fail(self, directory: str) -> None:
        self.disk.fail(errno.EIO, lambda name, path, _: name == "write" and f"/{directory}/t-" in path)

    def held_in(self, broker: int, name: str) -> set[int]:
        return {int(path.name[2:]) for path in self.path.glob(f"broker-{broker}-{name}/t-?")}

    def leaders(self) -> list[int]:
        topic = self.cluster.controller.image.topics["t"]
        return [partition.leader for partition in topic.partitions]

    async def produce(self, broker: int, index: int, records: bytes) -> ErrorCode:
        client = await self.client(broker)
        return ErrorCode((await client.produce("t", records, partition=index)).error_code)


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[FailingTrio]:
    found = FailingTrio(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def test_other_brokers_lead_the_partitions_of_a_failed_directory(
    trio: FailingTrio, make_batch: MakeBatch
) -> None:
    await trio.create([0, 1, 2], partitions=4)
    failing, healthy = sorted(trio.held_in(0, "a")), sorted(trio.held_in(0, "b"))
    assert (len(failing), len(healthy)) == (2, 2)
    trio.fail("broker-0-a")
    assert await trio.produce(0, failing[0], make_batch(b"v")) == ErrorCode.KAFKA_STORAGE_ERROR
    await trio.until(lambda: [trio.leaders()[index] for index in failing] == [1, 1])
    for index in failing:
        assert trio.cluster.controller.image.topics["t"].partitions[index].isr == (1, 2)
        assert await trio.produce(1, index, make_batch(b"v")) == ErrorCode.NONE
    for index in healthy:
        assert await trio.produce(0, index, make_batch(b"v")) == ErrorCode.NONE
    (topic,) = (await (await trio.client(1)).ask(MetadataRequest(topics=None), 9)).topics
    assert {each.partition_index: each.offline_replicas for each in topic.partitions} == {
        index: [0] if index in failing else [] for index in range(4)
    }


async def test_a_broker_without_a_healthy_directory_ends(trio: FailingTrio, make_batch: MakeBatch) -> None:
    await trio.create([0, 1, 2], partitions=2)
    for index in (0, 1):
        trio.disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/broker-0-" in path)
        partition = trio.hosted(0, index)
        partition.append(bytearray(make_batch(b"v")))
        assert partition.error == ErrorCode.KAFKA_STORAGE_ERROR
    await trio.until(lambda: 0 not in trio.cluster.nodes)
    await trio.until(lambda: trio.leaders() == [1, 1])
    await trio.until(lambda: not trio.cluster.controller.image.is_active(0))
    assert not trio.cluster.ended.is_set()
    trio.disk.heal()
    await trio.cluster.start_broker(trio.static(0))
    await trio.until(
        lambda: all(set(each.isr) == {0, 1, 2} for each in trio.cluster.controller.image.topics["t"].partitions)
    )


async def test_a_broker_whose_disks_fail_for_many_partitions_ends_once(trio: FailingTrio) -> None:
    trio.disk.fail(errno.EIO, lambda name, path, _: name == "make_directory" and "/broker-2-" in path)
    with structlog.testing.capture_logs() as logged:
        await trio.create([0, 1, 2], partitions=4)
        await trio.until(lambda: 2 not in trio.cluster.nodes)
        await trio.until(lambda: not trio.cluster.controller.image.is_active(2))
    assert [each["event"] for each in logged].count("all log directories failed, stopping the broker") == 1


async def test_a_copy_whose_promotion_failed_is_a_stray_after_a_restart(
    trio: FailingTrio, make_batch: MakeBatch
) -> None:
    await trio.create([0])
    source, target = ("a", "b") if trio.held_in(0, "a") else ("b", "a")
    assert await trio.produce(0, 0, make_batch(b"copied")) == ErrorCode.NONE
    place = f"{trio.path}/broker-0-{target}"
    trio.disk.fail(errno.EIO, lambda name, path, _: name in ("names", "open") and f"-{target}/t-0/" in f"{path}/")
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        place, [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0])]
    )
    response = await (await trio.client(0)).ask(AlterReplicaLogDirsRequest([wanted]), 2)
    assert response.results[0].partitions[0].error_code == ErrorCode.NONE
    directory = next(each for each in trio.cluster.nodes[0].directories if each.path == place)
    await trio.until(lambda: directory.offline)
    assert Path(place, "t-0").exists(), "the copy has the name"
    assert await trio.produce(0, 0, make_batch(b"not copied")) == ErrorCode.NONE
    trio.disk.heal()
    await trio.cluster.kill_broker(0)
    await trio.cluster.start_broker(trio.static(0))
    await trio.until(lambda: trio.leaders() == [0])
    partition = trio.hosted(0)
    assert partition.directory is not None
    assert (partition.directory.path[-1], partition.log_end_offset) == (source, 2)
    assert [path.name[-5:] for path in Path(place).glob("t-0*")] == ["stray"]
