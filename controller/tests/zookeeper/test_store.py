"""The store writes changes as the znodes of Kafka 3.9, and reads them back as the same image."""

from __future__ import annotations

import asyncio
import json

import pytest
from controller.tests.controller_kit import topics, uuid_of
from controller.tests.zookeeper.cluster import ZooKeeperCluster, zookeeper_cluster
from controller.tests.zookeeper.facts import kafka_trees
from controller.tests.zookeeper.requests import manual, same_as_stored, setting

from odradek_controller.image import ConfigResource
from odradek_controller.levels import Levels
from odradek_controller.replay import RECORD_TYPES
from odradek_controller.store import NotControllerError, UnsupportedRecordError
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import Create, Set
from odradek_controller.zookeeper.config_entities import credentials
from odradek_controller.zookeeper.controller_election import NO_CONTROLLER
from odradek_controller.zookeeper.fenced import ControllerTerm, FencedWriter
from odradek_controller.zookeeper.load import NO_STATE, load
from odradek_controller.zookeeper.record_storage import RECORD_STORAGE
from odradek_controller.zookeeper.store import ZooKeeperStore
from odradek_controller.zookeeper.znodes import Assignment, PartitionState, TopicZnode
from odradek_log.reporting import StandardReporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.access_control_entry_record import AccessControlEntryRecord
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.alter_partition import AlterPartitionRequest
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest


def test_every_record_is_stored_or_refused() -> None:
    assert set(RECORD_STORAGE) == set(RECORD_TYPES.values())


async def test_a_new_topic_has_the_znodes_of_kafka() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t3", partitions=3))
        image = await same_as_stored(cluster)
        ours, facts = await cluster.dump(), kafka_trees()[1]
        for path in [path for path in facts if path.startswith("/brokers/topics")]:
            assert set(_json(ours[path])) == set(_json(facts[path])), path
        for path in [path for path in facts if path.endswith("/state") or path.startswith("/config")]:
            assert ours[path] == facts[path]
        topic_id = json.loads(ours["/brokers/topics/t3"])["topic_id"]
        expected = facts["/brokers/topics/t3"].replace(b"HjA3tzBNRyWt-yGYlpXEzA", topic_id.encode())
        assert ours["/brokers/topics/t3"] == expected
        assert {path for path in ours if "t3" in path} == {path for path in facts if "t3" in path}
        assert image.topics["t3"].partitions[0].partition_epoch == 0
        assert not image.levels.directory_assignment
        assert not image.levels.elr_enabled
        assert image.topics["t3"].partitions[0].directories == ()


def _json(data: bytes) -> dict[str, object]:
    return dict(json.loads(data)) if data else {}


async def test_a_topic_begins_with_its_configuration_and_changes_are_notified() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(manual("t", [1], retention_ms="1"))
        assert await cluster.data("/config/topics/t") == '{"version":1,"config":{"retention.ms":"1"}}'
        assert await cluster.tool.children(paths.CONFIG_CHANGES) == []
        await controller.submit(setting(2, "t", segment_ms="600000"))
        await controller.submit(setting(4, "", message_max_bytes="2000000"))
        await controller.submit(setting(4, "1", log_cleaner_threads="2"))
        tree = await cluster.dump("/config")
        assert tree["/config/topics/t"] == b'{"version":1,"config":{"retention.ms":"1","segment.ms":"600000"}}'
        facts = kafka_trees()[2]
        for path in ("/config/brokers/1", "/config/brokers/<default>", "/config/changes/config_change_0000000002"):
            changed = path.replace("0002", "0001") if "changes" in path else path
            assert tree[changed] == facts[path]
        assert [tree[f"/config/changes/config_change_000000000{number}"] for number in (0, 2)] == [
            b'{"version":2,"entity_path":"topics/t"}',
            b'{"version":2,"entity_path":"brokers/1"}',
        ]
        image = await same_as_stored(cluster)
        assert image.configs[ConfigResource(4, "")] == {"message.max.bytes": "2000000"}


async def test_partitions_are_added_to_a_topic() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        grown = CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic("t", 3, None)])
        await controller.submit(grown)
        assert await cluster.version("/brokers/topics/t") == 1
        assert [await cluster.version(paths.state("t", index)) for index in range(3)] == [0, 0, 0]
        await same_as_stored(cluster)


async def test_a_deleted_topic_leaves_nothing() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        before = await cluster.dump()
        await controller.submit(topics("t", "u", partitions=2))
        await cluster.delete("t", "u")
        after = await cluster.dump()
        assert after == before
        await controller.submit(topics("t"))
        await same_as_stored(cluster)


async def test_the_isr_is_in_the_state_whose_version_is_the_partition_epoch() -> None:
    async with zookeeper_cluster() as cluster:
        for _ in range(3):
            await cluster.join()
        controller = await cluster.controller()
        await cluster.until_image(lambda found: len(found.image.brokers) == 3)
        await controller.submit(manual("t", [1, 2, 3]))
        topic = controller.image.topics["t"]
        for step, isr in enumerate([[1, 2], [1], [1, 2, 3]]):
            proposal = AlterPartitionRequest.PartitionData(0, 0, isr, [], 0, step)
            request = AlterPartitionRequest(
                1,
                controller.image.brokers[1].epoch,
                [AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[proposal])],
            )
            response = await controller.submit(request)
            result = response.topics[0].partitions[0]
            assert (result.error_code, result.isr, result.partition_epoch) == (ErrorCode.NONE, isr, step + 1)
        assert await cluster.version(paths.state("t", 0)) == 3
        assert await cluster.data(paths.state("t", 0)) == (
            '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'
        )
        await same_as_stored(cluster)


async def test_each_step_of_a_reassignment_has_a_new_leader_epoch() -> None:
    async with zookeeper_cluster() as cluster:
        for _ in range(3):
            await cluster.join()
        controller = await cluster.controller()
        await cluster.until_image(lambda found: len(found.image.brokers) == 3)
        await controller.submit(manual("t", [1, 2]))
        move = AlterPartitionReassignmentsRequest.ReassignablePartition(0, [1, 3])
        await controller.submit(
            AlterPartitionReassignmentsRequest(
                topics=[AlterPartitionReassignmentsRequest.ReassignableTopic("t", [move])]
            )
        )
        node = json.loads(await cluster.data("/brokers/topics/t"))
        assert (node["partitions"], node["adding_replicas"], node["removing_replicas"]) == (
            {"0": [1, 3, 2]},
            {"0": [3]},
            {"0": [2]},
        )
        partition = await cluster.partition("t")
        assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
        await same_as_stored(cluster)
        topic = controller.image.topics["t"]
        proposal = AlterPartitionRequest.PartitionData(0, 1, [1, 2, 3], [], 0, 1)
        await controller.submit(
            AlterPartitionRequest(
                1,
                controller.image.brokers[1].epoch,
                [AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[proposal])],
            )
        )
        node = json.loads(await cluster.data("/brokers/topics/t"))
        assert (node["partitions"], node["adding_replicas"]) == ({"0": [1, 3]}, {})
        partition = await cluster.partition("t")
        assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 3), 2, 2)
        await same_as_stored(cluster)


async def test_producer_ids_are_allocated_in_blocks() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        epoch = controller.image.brokers[1].epoch
        await controller.submit(AllocateProducerIdsRequest(1, epoch))
        assert await cluster.data(paths.PRODUCER_IDS) == kafka_trees()[3][paths.PRODUCER_IDS].decode()
        response = await controller.submit(AllocateProducerIdsRequest(1, epoch))
        assert response.producer_id_start == 1000
        await same_as_stored(cluster)


async def test_a_large_change_is_split_into_transactions() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("large", partitions=2_500))
        await same_as_stored(cluster)
        await cluster.delete("large")
        assert await cluster.tool.children(paths.TOPICS) == []


async def test_a_deposed_controller_stores_nothing() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        controller = await cluster.controller()
        other = await cluster.join(run_for_controller=False)
        # Another controller is elected without the first one's knowledge.
        _, stat = await cluster.tool.get(paths.CONTROLLER_EPOCH)
        await cluster.tool.set(paths.CONTROLLER_EPOCH, b"9", stat.version)
        before = await cluster.dump()
        with pytest.raises(NotControllerError):
            await controller.submit(topics("t"))
        assert controller.image.topics == {}
        assert {path for path in await cluster.dump() if "topics/t" in path} == set()
        assert before[paths.CONTROLLER_EPOCH] == b"9"
        await cluster.world.until(lambda: member.role.controller is None or member.role.controller is not controller)
        assert member.events[:2] == ["elected 1", "resigned"]
        assert other.role.controller_id == NO_CONTROLLER


async def test_a_cancelled_change_is_completed() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        pending = asyncio.ensure_future(controller.submit(topics("t")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        await cluster.until_image(lambda found: "t" in found.image.topics)
        await controller.submit(topics("u"))
        await same_as_stored(cluster)


async def test_a_write_whose_response_was_lost_is_not_repeated() -> None:
    async with zookeeper_cluster() as cluster:
        zk = await cluster.world.connect()
        await cluster.tool.create(paths.CONTROLLER_EPOCH, b"1")
        await cluster.tool.create("/counted", b"")
        lost: list[str] = []
        writer = FencedWriter(zk, ControllerTerm(1, 0, zk.session_id), lost.append)
        writing = asyncio.ensure_future(writer.write([Set("/counted", b"x", 0), Create("/new", b"y")]))
        for _ in range(3):  # the server has it, and its response is in transit
            await asyncio.sleep(0)
        cluster.world.drop(zk)
        await cluster.world.until(writing.done)
        await writing
        assert (await cluster.version("/counted"), await cluster.data("/new"), lost) == (1, "y", [])


async def test_unexpected_znodes_end_the_term() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t"))
        state = await cluster.data(paths.state("t", 0))
        await cluster.tool.set(paths.state("t", 0), state.replace('"leader_epoch":0', '"leader_epoch":7').encode())
        with pytest.raises(NotControllerError, match="differs from the controller's image"):
            await controller.submit(UnregisterBrokerRequest(1))
        await cluster.world.until(lambda: member.events == ["elected 1", "resigned", "elected 2"])
        assert (await cluster.partition("t")).leader_epoch == 7
        await same_as_stored(cluster)


async def test_an_interrupted_change_is_completed_by_the_next_controller() -> None:
    async with zookeeper_cluster() as cluster:
        node = TopicZnode(uuid_of(3), {0: Assignment((1,)), 1: Assignment((1,)), 2: Assignment((9,))})
        await cluster.tool.create(paths.topic("t"), node.encode())
        await cluster.tool.create(paths.partitions("t"))
        await cluster.tool.create(paths.partition("t", 0))
        await cluster.tool.create(paths.state("t", 0), PartitionState(1, 4, (1,), 8).encode())
        await cluster.tool.create(paths.partition("t", 1))
        await cluster.tool.create(paths.partition("t", 2))
        await cluster.join()
        image = await same_as_stored(cluster)
        assert [(p.leader, p.leader_epoch, p.partition_epoch) for p in image.topics["t"].partitions] == [
            (1, 5, 1),  # broker 1 registered after this was written, and leads again
            (1, 0, 0),
            (-1, -1, NO_STATE),
        ]
        await cluster.delete("t")
        assert await cluster.tool.children(paths.TOPICS) == []


async def test_a_new_controller_elects_leaders_for_missing_brokers() -> None:
    async with zookeeper_cluster() as cluster:
        node = TopicZnode(uuid_of(3), {index: Assignment((1, 2)) for index in range(3)})
        await cluster.tool.create(paths.topic("t"), node.encode())
        await cluster.tool.create(paths.partitions("t"))
        for index, isr in enumerate([(1, 2), (2, 1), (2,)]):
            await cluster.tool.create(paths.partition("t", index))
            await cluster.tool.create(paths.state("t", index), PartitionState(2, 4, isr, 1).encode())
        await cluster.join()
        await cluster.controller()
        image = await same_as_stored(cluster)
        assert [(p.leader, p.isr, p.leader_epoch, p.partition_epoch) for p in image.topics["t"].partitions] == [
            (1, (1,), 5, 1),
            (1, (1,), 5, 1),
            (-1, (2,), 5, 1),
        ]


async def test_a_broker_restarted_without_a_controller_leaves_the_isr() -> None:
    """A restarted broker may have lost records, and no controller has noticed."""
    async with zookeeper_cluster() as cluster:
        first, second = await cluster.join(run_for_controller=False), await cluster.join(run_for_controller=False)
        node = TopicZnode(uuid_of(3), {index: Assignment((1, 2)) for index in range(4)})
        await cluster.tool.create(paths.topic("t"), node.encode())
        await cluster.tool.create(paths.partitions("t"))
        for index, (leader, isr) in enumerate([(2, (1, 2)), (1, (1, 2)), (2, (2,)), (1, (1,))]):
            await cluster.tool.create(paths.partition("t", index))
            await cluster.tool.create(paths.state("t", index), PartitionState(leader, 4, isr, 1).encode())
        await second.unregister()
        await second.register()
        first.run_for_controller()
        await cluster.controller()
        image = await same_as_stored(cluster)
        assert [(p.leader, p.isr, p.leader_epoch, p.partition_epoch) for p in image.topics["t"].partitions] == [
            (1, (1,), 5, 1),
            (1, (1,), 5, 1),
            (2, (2,), 5, 1),
            (1, (1,), 4, 0),
        ]


async def test_an_unclean_leader_is_marked_as_recovering() -> None:
    async with zookeeper_cluster(unclean_leader_election_enable="true") as cluster:
        for _ in range(2):
            await cluster.join()
        controller = await cluster.controller()
        await cluster.until_image(lambda found: len(found.image.brokers) == 2)
        await controller.submit(manual("t", [2, 1]))
        topic = controller.image.topics["t"]
        proposal = AlterPartitionRequest.PartitionData(0, 0, [2], [], 0, 0)
        data = AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[proposal])
        await controller.submit(AlterPartitionRequest(2, controller.image.brokers[2].epoch, [data]))
        await cluster.members[1].unregister()
        await cluster.until_image(lambda found: 2 not in found.image.brokers)
        assert await cluster.data(paths.state("t", 0)) == (
            '{"controller_epoch":1,"leader":1,"version":1,"leader_recovery_state":1,"leader_epoch":1,"isr":[1]}'
        )
        await same_as_stored(cluster)


async def _store(cluster: ZooKeeperCluster) -> ZooKeeperStore:
    """Return a store in its own term, without a controller."""
    zk = await cluster.world.connect()
    await cluster.tool.create(paths.CONTROLLER_EPOCH, b"1")
    store = ZooKeeperStore(
        zk,
        ControllerTerm(1, 0, zk.session_id),
        node_id=1,
        lost=lambda why: None,
        wall_ms=lambda: 0,
        randbytes=bytes,
        reporter=StandardReporter(),
    )
    await store.open()
    return store


async def test_quotas_and_credentials_have_the_znodes_of_kafka() -> None:
    async with zookeeper_cluster() as cluster:
        store = await _store(cluster)
        facts = kafka_trees()[3]
        u1 = facts["/config/users/u1"]
        scram = json.loads(u1)["config"]["SCRAM-SHA-256"]
        (credential,) = credentials("users/u1", {"SCRAM-SHA-256": scram})
        user, client = ClientQuotaRecord.EntityData("user", "u1"), ClientQuotaRecord.EntityData("client-id", "c1")
        levels = Levels()
        await store.append([ClientQuotaRecord([client], "producer_byte_rate", 1048576.0)], levels)
        await store.append([credential, ClientQuotaRecord([user, client], "consumer_byte_rate", 2048.0)], levels)
        tree = await cluster.dump("/config")
        for path in ("/config/clients/c1", "/config/users/u1", "/config/users/u1/clients/c1"):
            assert tree[path] == facts[path]
        names = [f"{paths.CONFIG_CHANGES}/config_change_000000000{number}" for number in (3, 4, 5)]
        changes = [tree[path] for path in sorted(tree) if path.startswith(paths.CONFIG_CHANGE)]
        assert sorted(changes) == sorted(facts[name] for name in names)
        await store.append([ClientQuotaRecord([user], "request_percentage", 12.5)], levels)
        await store.append([RemoveUserScramCredentialRecord("u1", 1)], levels)
        assert await cluster.data("/config/users/u1") == '{"version":1,"config":{"request_percentage":"12.5"}}'
        kept = (await load(cluster.tool, 1)).image.security
        assert kept.scram_credentials == {}
        assert len(kept.client_quotas) == 3


@pytest.mark.parametrize(
    "record",
    [
        FeatureLevelRecord("metadata.version", 21),
        AccessControlEntryRecord(),
        ConfigRecord(16, "subscription", "interval.ms", "1000"),
    ],
    ids=lambda record: type(record).__name__,
)
async def test_a_record_that_zookeeper_cannot_store_refuses_the_change(record: Message) -> None:
    async with zookeeper_cluster() as cluster:
        store = await _store(cluster)
        before = await cluster.dump()
        with pytest.raises(UnsupportedRecordError):
            await store.append([ConfigRecord(4, "1", "log.cleaner.threads", "2"), record], Levels())
        assert await cluster.dump() == before
        await store.append([ConfigRecord(4, "1", "log.cleaner.threads", "2")], Levels())


async def test_a_change_of_two_records_increments_the_version_twice() -> None:
    async with zookeeper_cluster() as cluster:
        store = await _store(cluster)
        await store.append(
            [
                TopicRecord("t", uuid_of(1)),
                PartitionRecord(0, uuid_of(1), [1, 2], [1, 2], [], [], 1, 0, 0, 0, []),
            ],
            Levels(),
        )
        steps = [PartitionChangeRecord(0, uuid_of(1), isr=[1]), PartitionChangeRecord(0, uuid_of(1), leader=-1)]
        await store.append(steps, Levels())
        assert await cluster.version(paths.state("t", 0)) == 2
        assert await cluster.data(paths.state("t", 0)) == (
            '{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":1,"isr":[1]}'
        )
