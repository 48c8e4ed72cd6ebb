"""Requests to a controller over ZooKeeper, and its image compared with the znodes."""

from __future__ import annotations

from controller.tests.zookeeper.cluster import ZooKeeperCluster

from odradek_controller.image import ClusterImage
from odradek_controller.zookeeper.load import load
from odradek_wire.messages.alter_partition import AlterPartitionRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


async def same_as_stored(cluster: ZooKeeperCluster) -> ClusterImage:
    """Return the controller's image, after checking that a new controller would read the same from the znodes."""
    controller = await cluster.controller()
    image = controller.image
    stored = (await load(cluster.tool, image.epoch)).image
    assert stored.topics == image.topics
    assert stored.brokers == image.brokers
    assert stored.configs == image.configs
    assert (stored.next_producer_id, stored.security, stored.levels, stored.cluster_id) == (
        image.next_producer_id,
        image.security,
        image.levels,
        image.cluster_id,
    )
    return image


def manual(name: str, *replicas: list[int], **configs: str) -> CreateTopicsRequest:
    rows = [CreateTopicsRequest.CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(replicas)]
    context = [CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, -1, -1, rows, context)])


def setting(kind: int, name: str, **values: str) -> IncrementalAlterConfigsRequest:
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(key.replace("_", "."), 0, value) for key, value in values.items()
    ]
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, changes)])


async def propose_isr(cluster: ZooKeeperCluster, topic: str, *isr: int) -> None:
    """Let the leader propose this ISR for partition 0."""
    controller = await cluster.controller()
    found = await cluster.partition(topic)
    proposal = AlterPartitionRequest.PartitionData(0, found.leader_epoch, list(isr), [], 0, found.partition_epoch)
    data = AlterPartitionRequest.TopicData(topic_id=controller.image.topics[topic].id, partitions=[proposal])
    epoch = controller.image.brokers[found.leader].epoch
    await controller.submit(AlterPartitionRequest(found.leader, epoch, [data]))
