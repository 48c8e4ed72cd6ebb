"""Changes of other ZooKeeper clients reach the controller: brokers, topics, requests of old tools, notifications."""

from __future__ import annotations

import asyncio
import json

import pytest
from controller.tests.controller_kit import topics, uuid_of
from controller.tests.zookeeper.cluster import ZooKeeperCluster, zookeeper_cluster
from controller.tests.zookeeper.kit import DoubleWorld
from controller.tests.zookeeper.requests import manual, propose_isr, same_as_stored

from odradek_controller.image import RECOVERED, ClusterImage, ConfigResource, Endpoint, QuotaEntity
from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper import bootstrap, paths, znodes
from odradek_controller.zookeeper.client import NoNodeError
from odradek_controller.zookeeper.load import read_broker
from odradek_controller.zookeeper.reconciling import broker_change_records
from odradek_controller.zookeeper.znode_readers import CHANGE_EXPIRES_MS
from odradek_controller.zookeeper.znodes import Assignment, BrokerZnode, PartitionState, TopicZnode
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest

# -- brokers ----------------------------------------------------------------------------------------------------------


async def three(cluster: ZooKeeperCluster) -> None:
    for _ in range(3):
        await cluster.join()
    await cluster.until_image(lambda found: len(found.image.brokers) == 3)


async def test_the_epoch_of_a_registered_broker_is_the_czxid_of_its_znode() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join(rack="a")
        controller = await cluster.controller()
        second = await cluster.join(rack="b")
        await cluster.until_image(lambda found: 2 in found.image.brokers)
        broker = controller.image.brokers[2]
        _, stat = await cluster.tool.get(paths.broker(2))
        assert (broker.epoch, broker.rack, broker.fenced) == (stat.czxid, "b", False)
        assert broker.listeners == (Endpoint("PLAINTEXT", "localhost", 9002),)
        moved = BrokerZnode((Endpoint("PLAINTEXT", "localhost", 7777),), "b")
        await second.zk.set(paths.broker(2), moved.encode())
        await cluster.until_image(lambda found: found.image.brokers[2].listeners[0].port == 7777)
        assert controller.image.brokers[2].epoch == stat.czxid
        await same_as_stored(cluster)


async def test_a_broker_without_a_session_leaves_the_isr_in_a_new_epoch() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [2, 3], [3, 2]))
        await controller.submit(manual("alone", [2]))
        await cluster.members[1].unregister()
        await cluster.until_image(lambda found: 2 not in found.image.brokers)
        found = [await cluster.partition(*place) for place in (("t", 0), ("t", 1), ("alone", 0))]
        assert [(p.leader, p.isr, p.leader_epoch, p.partition_epoch) for p in found] == [
            (3, (3,), 1, 1),
            (3, (3,), 1, 1),
            (-1, (2,), 1, 1),
        ]
        await same_as_stored(cluster)
        await cluster.members[1].register()
        await cluster.until_image(lambda found: 2 in found.image.brokers)
        assert (await cluster.partition("alone")).leader == 2
        await same_as_stored(cluster)


async def test_a_broker_that_restarted_between_two_reads_is_noticed() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [2, 3]))
        epoch = controller.image.brokers[2].epoch
        await cluster.members[1].unregister()
        await cluster.members[1].register()
        await cluster.until_image(lambda found: 2 in found.image.brokers and found.image.brokers[2].epoch != epoch)
        assert (await cluster.partition("t")).leader == 3
        assert controller.image.is_active(2)
        await same_as_stored(cluster)


# -- topics of old tools ----------------------------------------------------------------------------------------------


async def test_a_topic_of_a_tool_gets_its_first_state() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        node = TopicZnode(uuid_of(7), {0: Assignment((1, 2)), 1: Assignment((2, 3))})
        await cluster.tool.create("/config/topics/t", znodes.encode_config({"retention.ms": "5"}))
        await cluster.tool.create(paths.topic("t"), node.encode())
        await cluster.until_image(lambda found: "t" in found.image.topics)
        image = await same_as_stored(cluster)
        assert image.topics["t"].id == uuid_of(7)
        assert [partition.isr for partition in image.topics["t"].partitions] == [(1, 2), (2, 3)]
        assert image.topic_configs("t") == {"retention.ms": "5"}
        assert await cluster.version(paths.topic("t")) == 0
        assert await cluster.tool.children(paths.CONFIG_CHANGES) == []


async def test_a_topic_without_an_id_gets_one() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.tool.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1]}}')
        await cluster.join()
        await cluster.until_image(lambda found: "old" in found.image.topics)
        await cluster.tool.create(paths.topic("late"), b'{"version":2,"partitions":{"0":[1]}}')
        await cluster.until_image(lambda found: "late" in found.image.topics)
        image = await same_as_stored(cluster)
        ids = [json.loads(await cluster.data(paths.topic(name)))["topic_id"] for name in ("old", "late")]
        assert len({image.topics["old"].id, image.topics["late"].id}) == len(set(ids)) == 2


@pytest.mark.parametrize("unclean", ["false", "true"])
async def test_a_topic_waits_for_a_live_replica(unclean: str) -> None:
    async with zookeeper_cluster(unclean_leader_election_enable=unclean) as cluster:
        await cluster.join()
        await cluster.controller()
        await cluster.tool.create(paths.topic("t"), TopicZnode(uuid_of(7), {0: Assignment((2,))}).encode())
        await cluster.until_image(lambda found: "t" in found.image.topics)
        assert (await cluster.partition("t")).leader == -1
        assert await cluster.tool.exists(paths.partitions("t")) is None
        await same_as_stored(cluster)
        await cluster.join()
        await cluster.until_image(lambda found: 2 in found.image.brokers)
        found = await cluster.partition("t")
        assert (found.leader, found.leader_epoch, found.leader_recovery_state) == (2, 0, RECOVERED)
        await same_as_stored(cluster)


async def test_partitions_of_a_tool_get_their_first_state() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        topic_id = controller.image.topics["t"].id
        grown = TopicZnode(topic_id, {0: Assignment((1,)), 1: Assignment((2, 3)), 2: Assignment((3,))})
        await cluster.tool.set(paths.topic("t"), grown.encode())
        await cluster.until_image(lambda found: len(found.image.topics["t"].partitions) == 3)
        assert (await cluster.partition("t", 1)).isr == (2, 3)
        assert await cluster.version(paths.topic("t")) == 1
        await same_as_stored(cluster)


async def test_a_topic_whose_znode_is_removed_is_deleted() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t"))
        for path in (paths.state("t", 0), paths.partition("t", 0), paths.partitions("t"), paths.topic("t")):
            await cluster.tool.delete(path)
        await cluster.until_image(lambda found: not found.image.topics)
        await controller.submit(topics("u"))
        assert sorted(controller.image.topics) == ["u"]


async def test_a_damaged_topic_is_reported_and_ignored() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.tool.create(paths.topic("bad"), b"{")
        member = await cluster.join()
        controller = await cluster.controller()
        await cluster.tool.create(paths.topic("worse"), b'{"partitions":{"1":[1]}}')
        await cluster.world.until(lambda: any("worse" in line for line in member.reports.logged))
        await controller.submit(topics("good"))
        assert list(controller.image.topics) == ["good"]
        assert any("/brokers/topics/bad" in line for line in member.reports.logged)


async def test_a_damaged_topic_without_an_id_is_ignored() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.tool.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1]}}')
        await cluster.tool.create(paths.partitions("old"))
        await cluster.tool.create(paths.partition("old", 0))
        await cluster.tool.create(paths.state("old", 0), b"{")
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("good"))
        assert list(controller.image.topics) == ["good"]
        assert set(controller.unreadable) == {"old"}


# -- requests of old tools --------------------------------------------------------------------------------------------


async def test_a_deleted_topic_and_its_deletion_request_are_removed() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        before = await cluster.dump()
        await controller.submit(topics("t", partitions=2))
        await cluster.tool.create(paths.delete_topic("t"))
        await cluster.tool.create(paths.delete_topic("never"))
        await cluster.until_image(lambda found: not found.image.topics)
        await cluster.world.until(lambda: _no_children(cluster, paths.DELETE_TOPICS))
        assert await cluster.dump() == before


async def _no_children(cluster: ZooKeeperCluster, path: str) -> bool:
    return await cluster.tool.children(path) == []


async def test_a_deletion_waits_for_the_last_replica() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        before = await cluster.dump(paths.TOPICS)
        await controller.submit(manual("t", [1, 2]))
        await controller.submit(manual("u", [1, 2]))
        await controller.submit(manual("v", [1, 3]))
        await cluster.members[1].unregister()
        await cluster.until_image(lambda found: 2 not in found.image.brokers)
        await cluster.tool.create(paths.delete_topic("t"))
        request = DeleteTopicsRequest(topic_names=["u", "v", "never"])
        response = await controller.submit(request)
        assert {result.name: result.error_code for result in response.responses} == {
            "u": ErrorCode.NONE,
            "v": ErrorCode.NONE,
            "never": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        again = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(None, controller.image.topics["u"].id)])
        (result,) = (await controller.submit(again)).responses
        assert (result.name, result.error_code) == ("u", ErrorCode.NONE)
        await cluster.until_image(lambda found: sorted(found.image.topics) == ["t", "u"])
        assert await cluster.tool.children(paths.DELETE_TOPICS) == ["t", "u"]
        # A topic in deletion keeps its name, and cannot be changed.
        (created,) = (await controller.submit(topics("t"))).topics
        assert (created.error_code, created.error_message) == (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 't' is marked for deletion.",
        )
        grow = CreatePartitionsRequest.CreatePartitionsTopic("t", 2, None)
        (grown,) = (await controller.submit(CreatePartitionsRequest([grow]))).results
        assert grown.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        move = AlterPartitionReassignmentsRequest.ReassignablePartition(0, [1, 3])
        reassignments = AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic("t", [move])]
        )
        (moved,) = (await controller.submit(reassignments)).responses[0].partitions
        assert moved.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elect = ElectLeadersRequest(0, [ElectLeadersRequest.TopicPartitions("t", [0])])
        (elected,) = (await controller.submit(elect)).replica_election_results[0].partition_result
        assert elected.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.members[1].register()
        await cluster.until_image(lambda found: not found.image.topics)
        await cluster.world.until(lambda: _no_children(cluster, paths.DELETE_TOPICS))
        assert await cluster.dump(paths.TOPICS) == before


async def test_a_deletion_waits_for_a_reassignment() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        move = AlterPartitionReassignmentsRequest.ReassignablePartition(0, [2])
        reassignments = [AlterPartitionReassignmentsRequest.ReassignableTopic("t", [move])]
        await controller.submit(AlterPartitionReassignmentsRequest(topics=reassignments))
        await controller.submit(DeleteTopicsRequest(topic_names=["t"]))
        await controller.submit(topics("later"))
        await cluster.tool.create(paths.delete_topic("later"))
        await cluster.until_image(lambda found: sorted(found.image.topics) == ["t"])
        assert controller.image.topics["t"].id not in controller.deletions
        await propose_isr(cluster, "t", 1, 2)
        await cluster.until_image(lambda found: not found.image.topics)
        await cluster.world.until(lambda: _no_children(cluster, paths.DELETE_TOPICS))


async def test_a_failed_deletion_is_retried_after_the_next_registration() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        member, other, _ = cluster.members
        controller = await cluster.controller()
        await controller.submit(manual("t", [1, 2]))
        controller.deletions.on_deletion_started = lambda topics: None
        await controller.submit(DeleteTopicsRequest(topic_names=["t"]))
        await cluster.world.until(lambda: controller.deletions.remaining_replicas(2) == [("t", 0)])
        brokers = controller.image.brokers
        controller.replicas_deleted(brokers[1], [("t", 0)], [])
        controller.replicas_deleted(brokers[2], [], [("t", 0)])
        assert [line for line in member.reports.logged if "broker cannot delete replicas" in line]
        # A report of an earlier registration changes nothing.
        controller.replicas_deleted(brokers[2]._replace(epoch=1), [("t", 0)], [])
        assert controller.deletions.remaining_replicas(2) == [("t", 0)]
        assert "t" in controller.image.topics
        await other.unregister()
        await other.register()
        await cluster.until_image(lambda found: not found.image.topics)


async def test_a_shutdown_request_of_an_earlier_registration_is_refused() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        old = controller.image.brokers[2].epoch
        registered_again = asyncio.Event()

        async def read(image: ClusterImage) -> list[Message]:
            await registered_again.wait()
            found = await read_broker(cluster.tool, 2)
            assert found is not None
            return broker_change_records(image, {**image.brokers, 2: found}, controller.context)

        reading = asyncio.ensure_future(controller.append_from(read))
        pending = asyncio.ensure_future(controller.submit(ControlledShutdownRequest(2, old)))
        await cluster.members[1].unregister()
        await cluster.members[1].register()
        registered_again.set()
        assert (await pending).error_code == ErrorCode.STALE_BROKER_EPOCH
        await reading
        assert controller.image.brokers[2].epoch > old
        assert not controller.image.brokers[2].in_controlled_shutdown


async def test_a_deletion_request_is_removed_when_deletion_is_disabled() -> None:
    async with zookeeper_cluster(delete_topic_enable="false") as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t"))
        await cluster.tool.create(paths.delete_topic("t"))
        await cluster.world.until(lambda: _no_children(cluster, paths.DELETE_TOPICS))
        assert "t" in controller.image.topics


async def _gone(cluster: ZooKeeperCluster, path: str) -> bool:
    return await cluster.tool.exists(path) is None


async def test_a_reassignment_of_an_old_tool_runs_and_its_znode_is_deleted() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        for name in ("t", "u"):
            await controller.submit(manual(name, [1]))
        reassignments = {("t", 0): (2,), ("u", 0): (1, 3), ("never", 0): (1,), ("u", 9): (1,)}
        await cluster.tool.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignment(reassignments))
        await cluster.until_image(lambda found: found.image.topics["u"].partitions[0].reassigning)
        assert (await cluster.partition("t")).adding_replicas == (2,)
        left = {("t", 0): (2,), ("u", 0): (1, 3)}
        assert znodes.decode_reassignment("", (await cluster.data(paths.REASSIGN_PARTITIONS)).encode()) == left
        await propose_isr(cluster, "t", 1, 2)
        await cluster.world.until(lambda: _lists(cluster, {("u", 0): (1, 3)}))
        await propose_isr(cluster, "u", 1, 3)
        await cluster.world.until(lambda: _gone(cluster, paths.REASSIGN_PARTITIONS))
        assert (await cluster.partition("t")).replicas == (2,)
        assert (await cluster.partition("u")).replicas == (1, 3)
        await same_as_stored(cluster)


async def _lists(cluster: ZooKeeperCluster, expected: dict[znodes.TopicPartition, tuple[int, ...]]) -> bool:
    try:
        data, _ = await cluster.tool.get(paths.REASSIGN_PARTITIONS)
    except NoNodeError:
        return False
    return znodes.decode_reassignment("", data) == expected


async def test_the_next_controller_continues_a_reassignment() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        await cluster.tool.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignment({("t", 0): (2, 3)}))
        await cluster.until_image(lambda found: found.image.topics["t"].partitions[0].reassigning)
        before = await cluster.partition("t")
        await cluster.tool.delete(paths.CONTROLLER)
        await cluster.until_image(lambda found: found.image.epoch == 2)
        assert await cluster.partition("t") == before
        await propose_isr(cluster, "t", 1, 2, 3)
        await cluster.world.until(lambda: _gone(cluster, paths.REASSIGN_PARTITIONS))
        assert (await cluster.partition("t")).replicas == (2, 3)


async def test_an_empty_reassignment_request_is_removed() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        controller = await cluster.controller()
        await controller.submit(manual("t", [1]))
        for data in (znodes.encode_reassignment({("t", 0): (1,)}), b"damaged"):
            await cluster.tool.create(paths.REASSIGN_PARTITIONS, data)
            await cluster.world.until(lambda: _gone(cluster, paths.REASSIGN_PARTITIONS))
        assert not (await cluster.partition("t")).reassigning
        assert any("damaged" in line for line in member.reports.logged)


async def test_preferred_leaders_are_elected_for_the_old_tool() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [2, 3]))
        await cluster.members[1].unregister()
        await cluster.until_image(lambda found: 2 not in found.image.brokers)
        await cluster.members[1].register()
        await cluster.until_image(lambda found: 2 in found.image.brokers)
        await propose_isr(cluster, "t", 3, 2)
        await cluster.tool.create(paths.PREFERRED_ELECTION, znodes.encode_partitions([("t", 0), ("never", 1)]))
        await cluster.world.until(lambda: _gone(cluster, paths.PREFERRED_ELECTION))
        assert (await cluster.partition("t")).leader == 2
        await same_as_stored(cluster)


# -- notifications ----------------------------------------------------------------------------------------------------


async def notify(cluster: ZooKeeperCluster, entity: str, **values: str) -> None:
    """Change a configuration as Kafka's tools and brokers do."""
    data = znodes.encode_config({name.replace("_", "."): value for name, value in values.items()})
    try:
        await cluster.tool.set(paths.config(entity), data)
    except NoNodeError:
        await bootstrap.create_all(cluster.tool, paths.config(entity), data)
    await cluster.tool.create(paths.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)


async def test_configurations_of_tools_are_read_and_not_written_again() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t"))
        await notify(cluster, "topics/t", segment_ms="600000")
        await notify(cluster, "brokers/<default>", message_max_bytes="5")
        await cluster.until_image(lambda found: ConfigResource(4, "") in found.image.configs)
        assert controller.image.topic_configs("t") == {"segment.ms": "600000"}
        assert await cluster.version("/config/topics/t") == 1
        assert len(await cluster.tool.children(paths.CONFIG_CHANGES)) == 2
        await notify(cluster, "topics/t")
        await cluster.until_image(lambda found: not found.image.topic_configs("t"))
        await same_as_stored(cluster)


async def test_enabling_unclean_election_elects_a_leader() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [2, 3]))
        await propose_isr(cluster, "t", 2)
        await cluster.members[1].unregister()
        await cluster.until_image(lambda found: 2 not in found.image.brokers)
        assert (await cluster.partition("t")).leader == -1
        await notify(cluster, "topics/t", unclean_leader_election_enable="true")
        await cluster.until_image(lambda found: found.image.topics["t"].partitions[0].leader == 3)
        await same_as_stored(cluster)


async def test_quotas_and_credentials_of_brokers_are_read() -> None:
    text = "salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096"
    async with zookeeper_cluster() as cluster:
        await notify(cluster, "users/CN%3Du", producer_byte_rate="7", **{"SCRAM-SHA-256": text})
        await cluster.join()
        controller = await cluster.controller()
        user = QuotaEntity((("user", "CN=u"),))
        assert controller.image.security.client_quotas == {}  # notify() writes dots for underscores
        await cluster.tool.set(
            paths.config("users/CN%3Du"), znodes.encode_config({"producer_byte_rate": "7", "SCRAM-SHA-256": text})
        )
        await cluster.tool.create(paths.CONFIG_CHANGE, znodes.encode_config_change("users/CN%3Du"), sequential=True)
        await cluster.until_image(lambda found: user in found.image.security.client_quotas)
        record = controller.image.security.scram_credentials["CN=u", 1]
        assert (record.salt, record.iterations) == (b"salt", 4096)
        both = "users/CN%3Du/clients/<default>"
        await bootstrap.create_all(
            cluster.tool, paths.config(both), znodes.encode_config({"request_percentage": "12.5"})
        )
        await cluster.tool.create(paths.CONFIG_CHANGE, znodes.encode_config_change(both), sequential=True)
        entity = QuotaEntity((("client-id", None), ("user", "CN=u")))
        await cluster.until_image(lambda found: entity in found.image.security.client_quotas)
        assert controller.image.security.client_quotas == {
            user: {"producer_byte_rate": 7.0},
            entity: {"request_percentage": 12.5},
        }
        await cluster.tool.set(paths.config("users/CN%3Du"), znodes.encode_config({"SCRAM-SHA-512": text}))
        await cluster.tool.create(paths.CONFIG_CHANGE, znodes.encode_config_change("users/CN%3Du"), sequential=True)
        await cluster.until_image(lambda found: found.image.security.scram_credentials.keys() == {("CN=u", 2)})
        await same_as_stored(cluster)


async def test_old_change_notifications_are_removed_with_the_next() -> None:
    async with zookeeper_cluster() as cluster:
        await cluster.join()
        controller = await cluster.controller()
        await notify(cluster, "brokers/1", log_cleaner_threads="2")
        await cluster.until_image(lambda found: ConfigResource(4, "1") in found.image.configs)
        cluster.now_ms += CHANGE_EXPIRES_MS + 1
        await notify(cluster, "brokers/1", log_cleaner_threads="3")
        await cluster.until_image(lambda found: found.image.broker_configs(1)["log.cleaner.threads"] == "3")
        assert await cluster.tool.children(paths.CONFIG_CHANGES) == ["config_change_0000000001"]
        assert controller.image.epoch == 1


async def test_a_deposed_controller_removes_no_notification() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        await cluster.controller()
        await notify(cluster, "brokers/1", log_cleaner_threads="2")
        await cluster.until_image(lambda found: ConfigResource(4, "1") in found.image.configs)
        _, stat = await cluster.tool.get(paths.CONTROLLER_EPOCH)
        await cluster.tool.set(paths.CONTROLLER_EPOCH, b"9", stat.version)
        cluster.now_ms += CHANGE_EXPIRES_MS + 1
        await notify(cluster, "brokers/1", log_cleaner_threads="3")
        await cluster.world.until(lambda: "resigned" in member.events)
        assert len(await cluster.tool.children(paths.CONFIG_CHANGES)) == 2


async def test_an_isr_written_by_a_leader_is_read() -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        controller = await cluster.controller()
        await controller.submit(manual("t", [1, 2]))
        await cluster.tool.set(paths.state("t", 0), PartitionState(1, 0, (1,), 1).encode())
        await cluster.tool.create(paths.ISR_CHANGE, znodes.encode_partitions([("t", 0)]), sequential=True)
        await cluster.until_image(lambda found: found.image.topics["t"].partitions[0].isr == (1,))
        await cluster.world.until(lambda: _no_children(cluster, paths.ISR_CHANGES))
        assert (await cluster.partition("t")).partition_epoch == 1
        await same_as_stored(cluster)


async def test_a_log_directory_event_is_passed_on_and_removed() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        await cluster.controller()
        for broker in (3, 2, 3):
            await cluster.tool.create(paths.LOG_DIR_EVENT, znodes.encode_log_dir_event(broker), sequential=True)
        await cluster.world.until(lambda: _no_children(cluster, paths.LOG_DIR_EVENTS))
        assert sorted({broker for brokers in member.failed_log_dirs for broker in brokers}) == [2, 3]


async def test_changes_during_a_lost_connection_are_read_after_it() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        controller = await cluster.controller()
        await controller.submit(topics("t"))
        for round_ in range(3):
            cluster.world.drop(member.zk)
            node = TopicZnode(uuid_of(round_), {0: Assignment((1,))})
            await cluster.tool.create(paths.topic(f"new{round_}"), node.encode())
            await notify(cluster, "topics/t", segment_ms=str(round_ + 14))
            await cluster.until_image(lambda found, n=round_: f"new{n}" in found.image.topics)  # type: ignore[misc]
            expected = {"segment.ms": str(round_ + 14)}
            await cluster.until_image(lambda found, e=expected: found.image.topic_configs("t") == e)  # type: ignore[misc]
        assert member.events == ["elected 1"]
        await same_as_stored(cluster)


async def test_a_failed_reader_runs_again_a_second_later() -> None:
    world = DoubleWorld()
    async with zookeeper_cluster(world) as cluster:
        member = await cluster.join()
        await (await cluster.controller()).submit(topics("t"))
        del cluster.now_ms  # a clock that fails
        await notify(cluster, "topics/t", segment_ms="14")
        for _ in range(5_000):
            await asyncio.sleep(0)
        assert len(member.reports.logged) == 1, "no time has passed"
        assert "changes in ZooKeeper could not be applied" in member.reports.logged[0]
        cluster.now_ms = 0
        world.timers.advance(1_000)
        await cluster.until_image(lambda found: found.image.topic_configs("t") == {"segment.ms": "14"})


async def test_a_controller_that_cannot_read_the_cluster_resigns() -> None:
    world = DoubleWorld()
    async with zookeeper_cluster(world) as cluster:
        await cluster.tool.set(paths.CLUSTER_ID, b"damaged")
        member = await cluster.join()
        for _ in range(5_000):
            await asyncio.sleep(0)
        assert len(member.reports.logged) == 1, "no time has passed"
        world.timers.advance(1_000)
        await cluster.world.until(lambda: len(member.reports.logged) > 1)
        assert all(
            "controller cannot start its term" in line and "/cluster/id" in line for line in member.reports.logged
        )
        assert member.events == []
        await cluster.tool.set(paths.CLUSTER_ID, znodes.encode_cluster_id("c"))
        assert (await cluster.controller()).image.cluster_id == "c"


async def test_a_resigned_controller_stores_nothing() -> None:
    async with zookeeper_cluster() as cluster:
        member = await cluster.join()
        controller = await cluster.controller()
        await member.role.close()
        member.started = False
        with pytest.raises(NotControllerError, match="resigned"):
            await controller.submit(topics("late"))
        assert await cluster.tool.children(paths.TOPICS) == []


# -- one controller after the other -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "cut"])
async def test_the_next_controller_has_the_same_image(how: str) -> None:
    async with zookeeper_cluster() as cluster:
        await three(cluster)
        first = next(member for member in cluster.members if member.role.controller)
        await first.controller.submit(manual("t", [first.id, *(m.id for m in cluster.members if m is not first)]))
        before = (await same_as_stored(cluster)).topics
        if how == "close":
            await first.role.close()
            first.started = False
        else:
            cluster.world.cut(first.zk)
        others = [member for member in cluster.members if member is not first]
        await cluster.world.until(lambda: any(member.role.controller for member in others))
        second = next(member for member in others if member.role.controller)
        assert second.controller.image.epoch == 2
        if how == "close":
            assert second.controller.image.topics == before
        else:
            await cluster.world.until(lambda: first.id not in second.controller.image.brokers)
            partition = second.controller.image.topics["t"].partitions[0]
            assert (partition.leader, first.id in partition.isr, partition.leader_epoch) == (others[0].id, False, 1)
            cluster.world.heal(first.zk)
            await cluster.world.until(lambda: first.role.controller is None)
            assert first.events == ["elected 1", "resigned"]
        await second.controller.submit(topics("u"))
        await same_as_stored(cluster)
