"""A cluster of three brokers in ZooKeeper mode: failover, admin requests, failed log directories, quotas."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from broker.tests.zookeeper.cluster import Connect, ThreeBrokers
from log.tests.failing_disk import FailingDisk

from odradek_controller.configs.table import Resource
from odradek_controller.controller import Controller
from odradek_controller.image import LOST_DIRECTORY, QuotaEntity
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.znodes import encode_config, encode_config_change
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.alter_partition import AlterPartitionRequest
from odradek_wire.messages.api_versions import ApiVersionsRequest
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.stop_replica import StopReplicaRequest
from odradek_wire.messages.update_features import UpdateFeaturesRequest
from odradek_wire.messages.update_metadata import UpdateMetadataRequest


async def test_acknowledged_records_survive_the_end_of_the_controller(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3], min_insync_replicas="2")
    first = cluster.controller_id
    assert await cluster.produce(1, make_batch(b"before")) == 0
    await cluster.kill(first)
    await cluster.until(lambda: cluster.controller is not None)
    await cluster.until_led(isr={1, 2, 3} - {first})
    leader = cluster.partition_on(min(cluster.processes)).leader  # type: ignore[union-attr]
    assert await cluster.produce(leader, make_batch(b"after")) == 0
    found = await cluster.read(leader)
    assert b"before" in found
    assert b"after" in found


async def test_a_killed_broker_restarts_and_joins_the_isr(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3])
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    await cluster.kill(victim)
    await cluster.until_led(isr={1, 2, 3} - {victim})
    assert await cluster.produce(1, make_batch(b"meanwhile")) == 0
    await cluster.start(victim)
    await cluster.until_led(isr={1, 2, 3})
    partition = cluster.processes[victim].node.broker.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 1


async def test_a_controlled_shutdown_moves_the_leaderships_first(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3])
    await cluster.stop(1)
    await cluster.until_led(2, isr={2, 3})
    assert await cluster.produce(2, make_batch(b"on")) == 0
    await cluster.start(1)
    await cluster.until_led(2, isr={1, 2, 3})


async def test_an_expired_session_is_followed_by_a_new_registration(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3])
    before = cluster.processes[2].adapter.broker_epoch
    cluster.zookeeper.expire(cluster.sessions[2])
    await cluster.until(lambda: cluster.processes[2].adapter.broker_epoch > before)
    await cluster.until_led(isr={1, 2, 3})
    leader = cluster.partition_on(3).leader  # type: ignore[union-attr]
    assert await cluster.produce(leader, make_batch(b"on")) == 0


async def test_a_second_broker_with_the_same_id_is_refused(cluster: ThreeBrokers) -> None:
    with pytest.raises(ValueError, match="/brokers/ids/2 belongs to another broker"):
        await cluster.start(2, data="second")
    assert cluster.processes[2].adapter.broker_epoch > 0


async def test_only_the_controller_named_in_metadata_serves_admin_requests(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    other = next(broker for broker in cluster.processes if broker != cluster.controller_id)
    client = await cluster.client(other)
    response = await client.ask(MetadataRequest(topics=None), 9)
    assert response.controller_id == cluster.controller_id
    assert [each.node_id for each in response.brokers] == [1, 2, 3]
    topic = CreateTopicsRequest.CreatableTopic("u", 1, 1)
    (result,) = (await client.ask(CreateTopicsRequest([topic]), 7)).topics
    assert result.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_elect_leaders_on_another_broker_returns_not_controller(cluster: ThreeBrokers, version: int) -> None:
    await cluster.create([1, 2, 3], partitions=2)
    other = next(broker for broker in cluster.processes if broker != cluster.controller_id)
    client = await cluster.client(other)
    for requested in ([ElectLeadersRequest.TopicPartitions("t", [0, 1])], None):
        response = await client.ask(ElectLeadersRequest(topic_partitions=requested), version)
        (found,) = response.replica_election_results
        assert response.error_code == ErrorCode.NONE
        assert [(each.partition_id, each.error_code) for each in found.partition_result] == [
            (0, ErrorCode.NOT_CONTROLLER),
            (1, ErrorCode.NOT_CONTROLLER),
        ]


async def test_auto_creation_works_on_a_broker_that_is_not_the_controller(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    other = next(broker for broker in cluster.processes if broker != cluster.controller_id)
    client = await cluster.client(other)
    wanted = MetadataRequest([MetadataRequest.MetadataRequestTopic(name="u")], allow_auto_topic_creation=True)
    await cluster.passing(client.ask(wanted, 9))
    await cluster.until(lambda: "u" in cluster.processes[other].adapter.image.topics)


async def test_producer_ids_are_unique_whichever_broker_is_the_controller(cluster: ThreeBrokers) -> None:
    await cluster.until(lambda: cluster.controller is not None)
    await cluster.until(
        lambda: all(each.adapter.image.controller_id is not None for each in cluster.processes.values())
    )
    found = set()
    for broker in cluster.processes:
        client = await cluster.client(broker)
        response = await cluster.passing(client.ask(InitProducerIdRequest(None, 60_000), 4))
        assert response.error_code == 0
        found.add(response.producer_id)
    assert len(found) == 3


async def test_a_changed_configuration_reaches_every_broker(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3], retention_ms="1000000")
    for process in cluster.processes.values():
        assert process.adapter.image.topic_configs("t") == {"retention.ms": "1000000"}
    client = await cluster.client(cluster.controller_id)
    entry = IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "2000000")
    request = IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsRequest.AlterConfigsResource(Resource.TOPIC, "t", [entry])]
    )
    response = await cluster.passing(client.ask(request, 1))
    assert response.responses[0].error_code == 0
    await cluster.until(
        lambda: all(
            process.adapter.image.topic_configs("t") == {"retention.ms": "2000000"}
            for process in cluster.processes.values()
        )
    )


async def test_a_broker_changes_its_own_configuration(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    other = next(broker for broker in cluster.processes if broker != cluster.controller_id)
    client = await cluster.client(other)
    entry = IncrementalAlterConfigsRequest.AlterableConfig("log.retention.ms", 0, "3000000")
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(Resource.BROKER, name, [entry]) for name in (str(other), "")
    ]
    response = await cluster.passing(client.ask(IncrementalAlterConfigsRequest(resources), 1))
    assert [each.error_code for each in response.responses] == [0, 0]
    assert cluster.processes[other].adapter.image.broker_configs(other) == {"log.retention.ms": "3000000"}
    assert cluster.processes[other].node.broker.config.integer("log.retention.ms") == 3_000_000
    await cluster.until(
        lambda: all(
            process.node.broker.config.integer("log.retention.ms") == 3_000_000
            for process in cluster.processes.values()
        )
    )
    controller = cluster.controller
    assert controller is not None
    await cluster.until(lambda: controller.image.broker_configs(other) == {"log.retention.ms": "3000000"})


@pytest.mark.parametrize("partitions", [1, 120])
async def test_a_deleted_topic_is_deleted_on_every_broker(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes], partitions: int
) -> None:
    await cluster.create([1, 2, 3], partitions=partitions)
    assert await cluster.produce(1, make_batch(b"x"), partitions - 1) == 0
    client = await cluster.client(cluster.controller_id)
    topic = DeleteTopicsRequest.DeleteTopicState("t")
    response = await cluster.passing(client.ask(DeleteTopicsRequest([topic], timeout_ms=60_000), 6))
    assert response.responses[0].error_code == 0
    assert cluster.partition_on(cluster.controller_id) is None
    await cluster.until(lambda: all(len(process.node.broker.partitions) == 0 for process in cluster.processes.values()))
    await cluster.until(
        lambda: (
            not any(
                directory.logs
                for process in cluster.processes.values()
                for directory in process.node.broker.log_directories.all
            )
        )
    )
    assert not list(cluster.path.glob("broker-*/t-0"))


async def test_changes_with_timeout_zero_are_made_and_time_out(cluster: ThreeBrokers) -> None:
    """As Kafka's ZkAdminManager; a KRaft controller refuses them."""
    client = await cluster.client(cluster.controller_id)
    timed_out = ErrorCode.REQUEST_TIMED_OUT

    async def create(*names: str, only: bool = False) -> list[int]:
        topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
        response = await cluster.passing(client.ask(CreateTopicsRequest(topics, 0, only), 5))
        return [topic.error_code for topic in response.topics]

    async def grow(name: str, count: int, *, only: bool = False) -> int:
        topics = [CreatePartitionsRequest.CreatePartitionsTopic(name, count, None)]
        response = await cluster.passing(client.ask(CreatePartitionsRequest(topics, -1, only), 3))
        return int(response.results[0].error_code)

    assert await create("t", only=True) == [ErrorCode.NONE]
    assert await create("t", "a b") == [timed_out, ErrorCode.INVALID_TOPIC_EXCEPTION]
    await cluster.until(lambda: cluster.partition_on(cluster.controller_id) is not None)
    assert await grow("t", 2, only=True) == ErrorCode.NONE
    assert await grow("t", 2) == timed_out
    await cluster.until(lambda: cluster.partition_on(cluster.controller_id, 1) is not None)
    assert await grow("t", 2) == ErrorCode.INVALID_PARTITIONS
    deleted = await cluster.passing(client.ask(DeleteTopicsRequest(topic_names=["t", "nope"], timeout_ms=0), 5))
    assert {each.name: each.error_code for each in deleted.responses} == {
        "t": timed_out,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await cluster.until(lambda: cluster.partition_on(cluster.controller_id) is None)


async def test_a_restarted_broker_deletes_the_log_of_a_deleted_topic(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3])
    assert await cluster.produce(1, make_batch(b"a")) == 0
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    await cluster.kill(victim)
    client = await cluster.client(cluster.controller_id)
    pending = asyncio.ensure_future(
        client.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=1_000), 6)
    )
    response = await cluster.passing(pending)
    # Clients do not see the topic; the stopped broker still has its log.
    assert response.responses[0].error_code == ErrorCode.NONE
    assert all(cluster.partition_on(broker) is None for broker in cluster.processes)
    await cluster.until(
        lambda: [path.parent.name for path in cluster.path.glob("broker-*/t-0")] == [f"broker-{victim}"]
    )
    assert cluster.controller is not None
    assert "t" in cluster.controller.image.topics
    assert await cluster.passing(cluster.sessions[cluster.controller_id].children("/admin/delete_topics")) == ["t"]
    # A new controller continues the deletion.
    cluster.zookeeper.expire(cluster.sessions[cluster.controller_id])
    await cluster.until(lambda: cluster.controller is not None and cluster.controller.image.epoch > 1)
    await cluster.start(victim)
    await cluster.until(lambda: not list(cluster.path.glob("broker-*/t-0")))
    assert not list(cluster.path.glob("broker-*/t-0.*-stray"))
    await cluster.until(lambda: cluster.controller is not None and "t" not in cluster.controller.image.topics)
    assert await cluster.passing(cluster.sessions[victim].children("/admin/delete_topics")) == []


async def test_logs_stay_until_the_controller_has_sent_the_replicas(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    stray = cluster.path / "broker-3" / "unknown-0"
    await cluster.stop(3)
    shutil.copytree(cluster.path / "broker-3" / "t-0", stray)
    for broker in list(cluster.processes):
        await cluster.kill(broker)
    process = await cluster.start(3)
    assert stray.exists()
    await cluster.until(lambda: cluster.controller is not None)
    await cluster.until(lambda: not stray.exists())
    assert list(cluster.path.glob("broker-3/unknown-0.*-stray"))
    await cluster.until(lambda: process.node.broker.partitions.get("t", 0) is not None)


async def test_a_deposed_controller_can_change_nothing(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    first = cluster.controller_id
    old = cluster.controller
    assert old is not None
    cluster.zookeeper.cut(cluster.sessions[first])
    await cluster.until(
        lambda: any(each.channel.local is not None for broker, each in cluster.processes.items() if broker != first)
    )
    topic = CreateTopicsRequest.CreatableTopic("u", 1, 1)
    client = await cluster.client(first)
    pending = asyncio.ensure_future(client.ask(CreateTopicsRequest([topic]), 7))
    cluster.zookeeper.heal(cluster.sessions[first])
    response = await cluster.passing(pending)
    assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    await cluster.until_led(isr={1, 2, 3})
    assert all("u" not in process.adapter.image.topics for process in cluster.processes.values())


async def test_version_0_of_commit_and_fetch_stores_offsets_in_zookeeper(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    client = await cluster.client(2)
    commit = OffsetCommitRequest("g", topics=[])
    commit.topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            "t",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(0, 42),
                OffsetCommitRequest.OffsetCommitRequestPartition(7, 42),
            ],
        )
    ]
    response = await cluster.passing(client.ask(commit, 0))
    found = {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}
    assert found == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    data, _ = await cluster.passing(cluster.sessions[1].get("/consumers/g/offsets/t/0"))
    assert data == b"42"
    wanted = [OffsetFetchRequest.OffsetFetchRequestTopic("t", [0, 7])]
    for group, expected in (
        ("g", {0: (42, 0), 7: (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}),
        ("other", dict.fromkeys((0, 7), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))),
    ):
        response = await cluster.passing(client.ask(OffsetFetchRequest(group, wanted), 0))
        fetched = {
            each.partition_index: (each.committed_offset, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        assert fetched == expected


async def test_offset_fetch_before_the_first_metadata_does_not_return_no_offset(
    cluster: ThreeBrokers,
) -> None:
    for broker in list(cluster.processes):
        await cluster.kill(broker)
    process = await cluster.start(1)
    client = await cluster.client(1)
    request = OffsetFetchRequest("g", [OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])])
    assert cluster.controller is None
    assert (await client.ask(request, 7)).error_code == ErrorCode.NOT_COORDINATOR
    await cluster.until(lambda: process.node.broker.has_metadata)
    response = await client.ask(request, 7)
    assert response.error_code == ErrorCode.NONE
    assert [each.committed_offset for topic in response.topics for each in topic.partitions] == [-1]


async def test_clients_wait_for_the_first_metadata_of_a_broker(
    cluster: ThreeBrokers,
) -> None:
    for broker in list(cluster.processes):
        await cluster.kill(broker)
    await cluster.start(1)
    client = await cluster.client(1)
    assert cluster.controller is None
    response = await cluster.passing(client.ask(MetadataRequest([]), 9))
    assert [each.node_id for each in response.brokers] == [1]
    assert response.controller_id == 1


async def test_inter_broker_apis_are_served_and_advertised(cluster: ThreeBrokers) -> None:
    client = await cluster.client(1)
    versions = {each.api_key: each for each in (await client.ask(ApiVersionsRequest("a", "1"), 3)).api_keys}
    assert {4, 5, 6, 7, 56, 67} <= set(versions)
    response = await client.ask(LeaderAndIsrRequest(controller_id=1, controller_epoch=0, broker_epoch=0), 7)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_control_requests_have_a_listener_of_their_own(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes], connect: Connect
) -> None:
    for broker in (1, 2, 3):
        await cluster.kill(broker)
    for broker in (1, 2):
        await cluster.start(
            broker,
            listeners="PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0,CLIENT://127.0.0.1:0",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT,CLIENT:PLAINTEXT",
            control_plane_listener_name="CONTROL",
        )
    await cluster.create([1, 2])
    assert await cluster.produce(1, make_batch(b"a")) == 0
    _, control, client = cluster.processes[1].node.listeners
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=0, broker_epoch=0)
    for listener, served in ((control, True), (client, False)):
        asking = await connect(cluster.processes[1].node, port=listener.port)
        versions = {each.api_key for each in (await asking.ask(ApiVersionsRequest("a", "1"), 3)).api_keys}
        assert ({4, 5, 6, 7, 56, 67} <= versions) is served
        assert served or not {4, 5, 6, 7, 56, 67} & versions
        if served:
            assert (await asking.ask(request, 7)).error_code == ErrorCode.STALE_BROKER_EPOCH
        else:
            asking.send(request, 7)
            assert await asking.is_closed_by_broker()


async def test_other_brokers_lead_the_partitions_of_a_failed_log_directory(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    others = [broker for broker in (1, 2, 3) if broker != victim]
    disk = FailingDisk(cluster.path)
    await cluster.stop(victim)
    process = await cluster.start(victim, log_dirs=f"{cluster.path}/a,{cluster.path}/b", disk=disk)
    await cluster.create([victim, *others], partitions=2)
    a = int(next((cluster.path / "a").glob("t-?")).name[2:])
    disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/a/t-" in path)
    assert await cluster.produce(victim, make_batch(b"v"), a) == ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.until_led(others[0], isr=set(others), index=a)
    assert await cluster.produce(others[0], make_batch(b"v"), a) == ErrorCode.NONE
    assert await cluster.produce(victim, make_batch(b"v"), 1 - a) == ErrorCode.NONE
    for broker in cluster.processes:
        response = await (await cluster.client(broker)).ask(MetadataRequest(topics=None), 9)
        (topic,) = response.topics
        offline = {each.partition_index: each.offline_replicas for each in topic.partitions}
        assert offline == {a: [victim], 1 - a: []}
    assert await cluster.passing(cluster.sessions[1].children("/log_dir_event_notification")) == []
    assert cluster.controller is not None
    # A new controller asks all brokers again, with the same result.
    first = cluster.controller_id
    cluster.zookeeper.expire(cluster.sessions[first])
    await cluster.until(lambda: cluster.controller is not None and cluster.controller.image.epoch > 1)
    controller = cluster.controller
    await cluster.until(lambda: _lost(controller, a, victim))
    # A restarted broker counts as one without failed disks.
    disk.heal()
    await cluster.stop(victim)
    await cluster.start(victim, log_dirs=f"{cluster.path}/a,{cluster.path}/b")
    await cluster.until_led(isr={1, 2, 3}, index=a)
    assert not _lost(cluster.controller, a, victim)
    assert process.ended.is_set() is False


def _lost(controller: Controller | None, index: int, broker: int) -> bool:
    partition = None if controller is None else controller.image.partition("t", index)
    return partition is not None and partition.directory(broker) == LOST_DIRECTORY


async def test_a_broker_without_log_directories_ends(cluster: ThreeBrokers, make_batch: Callable[..., bytes]) -> None:
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    others = [broker for broker in (1, 2, 3) if broker != victim]
    disk = FailingDisk(cluster.path)
    await cluster.stop(victim)
    process = await cluster.start(victim, disk=disk)
    await cluster.create([victim, *others])
    disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/t-0/" in path)
    partition = process.node.broker.partitions.get("t", 0)
    assert partition is not None
    partition.append(bytearray(make_batch(b"v")))
    await cluster.until(process.ended.is_set)
    cluster.zookeeper.crash(cluster.sessions.pop(victim))
    del cluster.processes[victim]
    await cluster.until_led(others[0], isr=set(others))


async def test_an_old_log_on_a_repaired_disk_does_not_replace_the_new_copy(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    others = [broker for broker in (1, 2, 3) if broker != victim]
    disk, log_dirs = FailingDisk(cluster.path), f"{cluster.path}/a,{cluster.path}/b"
    await cluster.stop(victim)
    await cluster.start(victim, log_dirs=log_dirs, disk=disk)
    await cluster.create([victim, *others])
    assert (cluster.path / "a/t-0").exists()
    assert await cluster.produce(victim, make_batch(b"before")) == ErrorCode.NONE
    disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/a/t-" in path)
    assert await cluster.produce(victim, make_batch(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.until_led(others[0], isr=set(others))
    for replicas in (others, [*others, victim]):
        await cluster.move(replicas)
        await cluster.until_led(others[0], isr=set(replicas))
    assert await cluster.produce(others[0], make_batch(b"meanwhile")) == ErrorCode.NONE
    disk.heal()
    await cluster.stop(victim)
    for broker in others:
        # There is no other replica to copy from.
        await cluster.kill(broker)
    process = await cluster.start(victim, log_dirs=log_dirs)
    partitions = process.node.broker.partitions
    await cluster.until(lambda: partitions.get("t", 0) is not None)
    partition = partitions.get("t", 0)
    assert partition is not None
    assert partition.directory is not None
    assert (partition.directory.path, partition.log_end_offset) == (f"{cluster.path}/b", 2)
    assert [path.name[-5:] for path in (cluster.path / "a").glob("t-*")] == ["stray"]


async def test_a_broker_warns_that_it_enforces_no_acls(
    cluster: ThreeBrokers,
) -> None:
    tool = await cluster.zookeeper.connect(chroot="/kafka")
    for path in ("/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Topic/t"):
        await cluster.passing(tool.create(path, b""))
    await cluster.stop(3)
    with structlog.testing.capture_logs() as logged:
        await cluster.start(3)
    warnings = [each for each in logged if "ACLs are not enforced" in each["event"]]
    assert [(each["log_level"], each["resources"]) for each in warnings] == [("warning", 1)]


@pytest.mark.parametrize("partitions", [3, 120])
async def test_a_broker_whose_disk_fails_for_many_partitions_ends_once(cluster: ThreeBrokers, partitions: int) -> None:
    victim = next(broker for broker in (3, 2) if broker != cluster.controller_id)
    disk = FailingDisk(cluster.path)
    await cluster.stop(victim)
    process = await cluster.start(victim, disk=disk)
    disk.fail(errno.EIO, lambda name, path, _: name == "make_directory" and "/t-" in path)
    with structlog.testing.capture_logs() as logged:
        await cluster.create([1, 2, 3], partitions=partitions)
        await cluster.until(process.ended.is_set)
    assert [each["event"] for each in logged].count("all log directories failed, stopping the broker") == 1
    del cluster.processes[victim]


async def test_logs_of_a_topic_with_a_damaged_znode_stay_and_are_served_later(
    cluster: ThreeBrokers, make_batch: Callable[..., bytes]
) -> None:
    await cluster.create([1, 2, 3])
    assert await cluster.produce(1, make_batch(b"kept")) == 0
    tool = await cluster.zookeeper.connect(chroot="/kafka")
    good, _ = await cluster.passing(tool.get("/brokers/topics/t"))
    for broker in (1, 2, 3):
        await cluster.kill(broker)
    await cluster.passing(tool.set("/brokers/topics/t", b"{"))
    shutil.copytree(cluster.path / "broker-3" / "t-0", cluster.path / "broker-3" / "unknown-0")
    for broker in (1, 2, 3):
        await cluster.start(broker)
    await cluster.until(lambda: all(len(each.adapter.image.brokers) == 3 for each in cluster.processes.values()))
    controller = cluster.controller
    assert controller is not None
    assert "t" not in controller.image.topics
    client = await cluster.client(cluster.controller_id)
    for name, error in (("t", ErrorCode.TOPIC_ALREADY_EXISTS), ("u", ErrorCode.NONE)):
        topic = CreateTopicsRequest.CreatableTopic(name, 1, 3)
        response = await cluster.passing(client.ask(CreateTopicsRequest([topic]), 7))
        assert response.topics[0].error_code == error
    assert cluster.controller is controller
    await cluster.until(lambda: len(list(cluster.path.glob("broker-*/u-0"))) == 3)
    assert len(list(cluster.path.glob("broker-*/t-0"))) == 3
    assert (cluster.path / "broker-3" / "unknown-0").exists()
    await cluster.passing(tool.set("/brokers/topics/t", good))
    await cluster.until_led(isr={1, 2, 3})
    assert not list(cluster.path.glob("broker-*/t-0.*"))
    found = cluster.partition_on(1)
    assert found is not None
    partition = cluster.processes[found.leader].node.broker.partitions.get("t", 0)
    assert partition is not None
    await cluster.until(lambda: partition.high_watermark == 1)
    assert b"kept" in await cluster.read(found.leader)
    # Now the controller knows all replicas again, and strays, too.
    await cluster.until(lambda: list(cluster.path.glob("broker-3/unknown-0.*-stray")))
    await tool.close()


def proposal(controller: Controller, isr: list[int], broker_epoch: int | None = None) -> AlterPartitionRequest:
    """Return a proposal of broker 1, the leader, for this ISR of partition 0."""
    topic = controller.image.topics["t"]
    state = topic.partitions[0]
    wanted = AlterPartitionRequest.PartitionData(
        0,
        state.leader_epoch,
        new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker) for broker in isr],
        partition_epoch=state.partition_epoch,
    )
    epoch = controller.image.brokers[1].epoch if broker_epoch is None else broker_epoch
    return AlterPartitionRequest(1, epoch, [AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[wanted])])


async def test_a_request_of_an_earlier_registration_changes_nothing(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    controller = cluster.controller
    assert controller is not None
    before, old = controller.image, controller.image.brokers[1].epoch - 1
    client = await cluster.client(cluster.controller_id)
    for request, version in (
        (proposal(controller, [1], old), 3),
        (ControlledShutdownRequest(1, old), 3),
        (AllocateProducerIdsRequest(1, old), 0),
    ):
        response = await cluster.passing(client.ask(request, version))
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH, request
    assert controller.image is before


async def test_a_deposed_controller_accepts_no_request_of_a_broker(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    first, old = cluster.controller_id, cluster.controller
    assert old is not None
    client = await cluster.client(first)
    requests = [
        (proposal(old, [1]), 3, ErrorCode.NOT_CONTROLLER),
        (ControlledShutdownRequest(2, old.image.brokers[2].epoch), 3, ErrorCode.STALE_CONTROLLER_EPOCH),
        (AllocateProducerIdsRequest(2, old.image.brokers[2].epoch), 0, ErrorCode.NOT_CONTROLLER),
    ]
    cluster.zookeeper.cut(cluster.sessions[first])
    await cluster.until(
        lambda: [each for broker, each in cluster.processes.items() if broker != first and each.channel.local]
    )
    tool = await cluster.zookeeper.connect(chroot="/kafka")
    ids, _ = await tool.get("/latest_producer_id_block")
    for request, version, error in requests:
        pending = asyncio.ensure_future(client.ask(request, version))
        cluster.zookeeper.heal(cluster.sessions[first])
        assert (await cluster.passing(pending)).error_code == error, request
    assert (await tool.get("/latest_producer_id_block"))[0] == ids
    await cluster.until_led(isr={1, 2, 3})
    await tool.close()


async def test_requests_of_a_deposed_controller_are_refused(cluster: ThreeBrokers) -> None:
    await cluster.create([1, 2, 3])
    first = cluster.controller_id
    cluster.zookeeper.expire(cluster.sessions[first])
    await cluster.until(lambda: cluster.controller is not None and cluster.controller.image.epoch > 1)
    controller = cluster.controller
    assert controller is not None
    victim = next(broker for broker in (3, 2) if broker != first)
    await cluster.until(lambda: cluster.processes[victim].adapter.controller_epoch == controller.image.epoch)
    await cluster.until_led(isr={1, 2, 3})
    before = cluster.processes[victim].adapter.image
    epoch = cluster.processes[victim].adapter.broker_epoch
    client = await cluster.client(victim)
    topic = controller.image.topics["t"]
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState("t", 0, 1, victim, 99, [victim], 99, [1, 2, 3])
    topic_state = LeaderAndIsrRequest.LeaderAndIsrTopicState("t", topic.id, [state])
    stop = StopReplicaRequest.StopReplicaPartitionState(0, 99, True)
    fields = {"controller_id": first, "controller_epoch": 1, "broker_epoch": epoch}
    stops = [StopReplicaRequest.StopReplicaTopicState("t", [stop])]
    requests: list[tuple[Any, int]] = [
        (LeaderAndIsrRequest(**fields, topic_states=[topic_state]), 7),
        (UpdateMetadataRequest(**fields), 8),
        (StopReplicaRequest(**fields, topic_states=stops), 4),
    ]
    for request, version in requests:
        assert (await cluster.passing(client.ask(request, version))).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    after = cluster.processes[victim].adapter.image
    assert (after.topics, after.brokers.keys()) == (before.topics, before.brokers.keys())
    assert cluster.processes[victim].node.broker.partitions.get("t", 0) is not None


async def test_feature_updates_and_client_metrics_are_refused(
    cluster: ThreeBrokers,
) -> None:
    await cluster.create([1, 2, 3])
    client = await cluster.client(cluster.controller_id)
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey("metadata.version", 21, upgrade_type=1),
        UpdateFeaturesRequest.FeatureUpdateKey("metadata.version", 0, upgrade_type=2),
        UpdateFeaturesRequest.FeatureUpdateKey("", 1, upgrade_type=1),
    ]
    for update in updates:
        response = await cluster.passing(client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1))
        assert (response.error_code, [each.error_code for each in response.results]) == (0, [ErrorCode.INVALID_REQUEST])
    entry = IncrementalAlterConfigsRequest.AlterableConfig("interval.ms", 0, "1000")
    resources = [IncrementalAlterConfigsRequest.AlterConfigsResource(16, "metrics", [entry])]
    refused = await cluster.passing(client.ask(IncrementalAlterConfigsRequest(resources), 1))
    assert refused.responses[0].error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_quotas_and_credentials_of_tools_reach_every_broker(cluster: ThreeBrokers) -> None:
    tool = await cluster.zookeeper.connect(chroot="/kafka")

    async def write(entity: str, **values: str) -> None:
        data = encode_config(values)
        path = f"/config/{entity}"
        if await tool.exists(path) is None:
            await tool.create(path, data)
        else:
            await tool.set(path, data)
        await tool.create(paths.CONFIG_CHANGE, encode_config_change(entity), sequential=True)

    def quotas(broker: int) -> dict[Any, Any]:
        return dict(cluster.processes[broker].adapter.image.security.client_quotas)

    await cluster.passing(write("clients/c", producer_byte_rate="1024"))
    await cluster.kill(3)
    scram = "salt=czE=,stored_key=c3Q=,server_key=c2U=,iterations=4096"
    await cluster.passing(write("users/u", **{"SCRAM-SHA-256": scram}))
    await cluster.passing(tool.create("/config/users/u/clients"))
    await cluster.passing(write("users/u/clients/<default>", request_percentage="12.5"))
    await cluster.passing(write("ips/<default>", connection_creation_rate="7"))
    await cluster.start(3)  # it reads the znode; the others get a notification
    entity = QuotaEntity
    expected = {
        entity((("client-id", "c"),)): {"producer_byte_rate": 1024.0},
        entity((("client-id", None), ("user", "u"))): {"request_percentage": 12.5},
        entity((("ip", None),)): {"connection_creation_rate": 7.0},
    }
    await cluster.until(lambda: all(quotas(broker) == expected for broker in (1, 2, 3)))
    assert all(("u", 1) in process.adapter.image.security.scram_credentials for process in cluster.processes.values())
    assert all(process.node.broker.image.security.client_quotas == expected for process in cluster.processes.values())
    client = await cluster.client(2)
    component = DescribeClientQuotasRequest.ComponentData
    for components, strict, found in (
        ([], False, {"client-id=c", "client-id=None user=u", "ip=None"}),
        ([component("client-id", 2, None)], False, {"client-id=c", "client-id=None user=u"}),
        ([component("client-id", 2, None)], True, {"client-id=c"}),
        ([component("client-id", 1, None), component("user", 0, "u")], True, {"client-id=None user=u"}),
        ([component("user", 0, "other")], False, set()),
    ):
        response = await client.ask(DescribeClientQuotasRequest(components, strict), 1)
        assert {
            " ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity) for entry in response.entries
        } == found
    # A removed quota is removed on a broker that was down, too.
    await cluster.passing(write("clients/c"))
    await cluster.passing(tool.delete("/config/ips/<default>"))
    await cluster.passing(tool.create(paths.CONFIG_CHANGE, encode_config_change("ips/<default>"), sequential=True))
    await cluster.until(lambda: all(len(quotas(broker)) == 1 for broker in (1, 2, 3)))
    await cluster.passing(write("clients/c", producer_byte_rate="many"))
    await cluster.passing(write("users/u", request_percentage="5"))
    await cluster.until(lambda: all(len(quotas(broker)) == 2 for broker in (1, 2, 3)))
    assert all(not process.adapter.image.security.scram_credentials for process in cluster.processes.values())
    await tool.close()
