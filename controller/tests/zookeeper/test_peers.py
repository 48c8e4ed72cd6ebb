"""With a real ZooKeeper and Apache Kafka 3.9: both write the same znodes, and each continues the other's cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from controller.tests.zookeeper.cluster import ZooKeeperCluster, zookeeper_cluster
from controller.tests.zookeeper.facts import kafka_trees
from controller.tests.zookeeper.kit import RealWorld
from controller.tests.zookeeper.requests import manual, propose_isr, same_as_stored, setting
from odradek_peers import KAFKA_3_9, ApacheKafka, ZooKeeperServer

from odradek_controller.zookeeper import paths
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.uuid import uuid_to_text

pytestmark = pytest.mark.peers

_bases = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def real(server: ZooKeeperServer) -> RealWorld:
    return RealWorld(server, f"/round-{next(_bases)}")


async def send_admin_requests(cluster: ZooKeeperCluster) -> None:
    """Change the cluster as Kafka's was changed for `kafka_trees`: t3 with configurations and a fourth partition, a
    block of producer ids, and a deleted topic."""
    controller = await cluster.controller()
    await controller.submit(manual("t3", [1], [1], [1]))
    await controller.submit(setting(2, "t3", retention_ms="600000"))
    await controller.submit(setting(4, "1", log_cleaner_threads="2"))
    await controller.submit(setting(4, "", message_max_bytes="2000000"))
    await controller.submit(CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic("t3", 4, None)]))
    await controller.submit(AllocateProducerIdsRequest(1, controller.image.brokers[1].epoch))
    await controller.submit(manual("gone", [1]))
    await cluster.delete("gone")


async def test_the_znodes_after_admin_requests_are_those_of_kafka(server: ZooKeeperServer) -> None:
    async with zookeeper_cluster(real(server)) as cluster:
        await cluster.join()
        await send_admin_requests(cluster)
        image = await same_as_stored(cluster)
        ours, facts = await cluster.dump(), kafka_trees()[3]
        topic_id = uuid_to_text(image.topics["t3"].id).encode()
        same = [path for path in facts if path.startswith(("/brokers", "/config/", "/admin", "/feature", "/latest"))]
        same = [path for path in same if not path.startswith("/brokers/topics/__")]
        differing = {
            "/brokers/ids/1",  # its port and listeners
            *(path for path in same if "_offsets" in path or "/config/changes/" in path),
            *(path for path in same if path.startswith(("/config/clients/", "/config/users/"))),
        }
        for path in same:
            if path not in differing:
                assert ours[path] == facts[path].replace(b"HjA3tzBNRyWt-yGYlpXEzA", topic_id), path
        changes = [ours[f"{paths.CONFIG_CHANGES}/{name}"] for name in await cluster.tool.children(paths.CONFIG_CHANGES)]
        assert changes == [facts[f"/config/changes/config_change_000000000{number}"] for number in range(3)]


async def test_the_second_candidate_replaces_a_disconnected_controller(server: ZooKeeperServer) -> None:
    async with zookeeper_cluster(real(server)) as cluster:
        first = await cluster.join()
        await cluster.controller()
        second = await cluster.join()
        await cluster.until_image(lambda found: len(found.image.brokers) == 2)
        await first.controller.submit(manual("t", [1, 2], [2, 1]))
        cluster.world.cut(first.zk)
        await cluster.world.until(lambda: second.role.controller is not None)
        deposed = asyncio.ensure_future(first.controller.submit(manual("late", [1])))
        await cluster.world.until(lambda: 1 not in second.controller.image.brokers)
        partitions = second.controller.image.topics["t"].partitions
        assert [(p.leader, p.isr, p.leader_epoch) for p in partitions] == [(2, (2,), 1), (2, (2,), 1)]
        cluster.world.heal(first.zk)
        await cluster.world.until(deposed.done)
        assert deposed.exception() is not None
        assert "late" not in await cluster.tool.children(paths.TOPICS)
        await cluster.world.until(lambda: first.events == ["elected 1", "resigned"])
        await first.register()
        await cluster.world.until(lambda: 1 in second.controller.image.brokers)
        await propose_isr(cluster, "t", 2, 1)
        await same_as_stored(cluster)


async def test_a_restart_of_zookeeper_changes_nothing(server: ZooKeeperServer) -> None:
    async with zookeeper_cluster(real(server)) as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        restarting = asyncio.ensure_future(cluster.world.restart())
        await controller.submit(manual("meanwhile", [1]))
        await restarting
        await cluster.tool.until_connected()
        image = await same_as_stored(cluster)
        assert (sorted(image.topics), image.epoch) == (["meanwhile", "t"], 1)


async def test_kafka_and_odradek_read_each_others_znodes(server: ZooKeeperServer) -> None:
    world = real(server)
    async with zookeeper_cluster(world) as cluster:
        member = await cluster.join()
        await send_admin_requests(cluster)
        ours = (await same_as_stored(cluster)).topics["t3"]
        await member.role.close()
        await member.unregister()
        kafka = ApacheKafka(KAFKA_3_9, zookeeper=f"{server.connect_string}{world.base}")
        try:
            kafka.launch()  # not from a thread: it would be killed with that
            await asyncio.to_thread(kafka.wait)
            await asyncio.to_thread(_use, kafka, uuid_to_text(ours.id))
        finally:
            kafka.close()
        assert await cluster.data(paths.CONTROLLER_EPOCH) == "2"
        # Our next controller reads the topic that Kafka has created, and the ISRs that it has written.
        second = await cluster.join()
        image = (await cluster.controller()).image
        assert image.epoch == 3
        assert [len(image.topics[name].partitions) for name in ("t3", "theirs")] == [5, 2]
        assert image.topics["t3"].id == ours.id
        assert image.topic_configs("theirs") == {"segment.bytes": "1048576"}
        assert image.next_producer_id == 2000
        assert second.reports.logged == []
        await same_as_stored(cluster)


def _use(kafka: ApacheKafka, topic_id: str) -> None:
    """Use the topics that our controller has created with clients of Kafka, and create another one."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    leaders: dict[int, int] = {}
    while leaders != dict.fromkeys(range(4), 1):  # the test's own timeout ends this
        found = admin.list_topics(timeout=30).topics
        leaders = {index: one.leader for index, one in found["t3"].partitions.items()} if "t3" in found else {}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, "t3"), ConfigResource(ConfigResource.Type.BROKER, "1")]
    described = [future.result() for future in admin.describe_configs(resources).values()]
    assert described[0]["retention.ms"].value == "600000"
    assert (described[1]["log.cleaner.threads"].value, described[1]["message.max.bytes"].value) == ("2", "2000000")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for index in range(4):
        producer.produce("t3", b"hello", partition=index)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("t3", index, 0) for index in range(4)])
    got = [message for message in consumer.consume(4, 30) if message.error() is None]
    assert [message.value() for message in got] == [b"hello"] * 4
    consumer.close()
    partition_metadata = (kafka.data_directory / "t3-0" / "partition.metadata").read_text()
    assert f"topic_id: {topic_id}" in partition_metadata
    admin.create_topics([NewTopic("theirs", 2, 1, config={"segment.bytes": "1048576"})])["theirs"].result(30)
    admin.create_partitions([NewPartitions("t3", 5)])["t3"].result(30)
