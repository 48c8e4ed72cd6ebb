"""Replicas on failed disks of brokers that live, where the levels know no log directories: over ZooKeeper a broker says
KAFKA_STORAGE_ERROR of each when it is asked to lead or to follow it.

In the image such a replica is in LOST_DIRECTORY, in memory only: whoever is the controller next asks anew, and a broker
that registers again is believed to have all of its disks. Source: KafkaController.processLeaderAndIsrResponseReceived.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek_wire.message import Message
from odradek_wire.uuid import Uuid

from ..election import Election, change
from ..image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage, PartitionRegistration
from .context import CommandContext
from .policy import election_policy

TopicIdPartition = tuple[Uuid, int]


def replicas_found(
    image: ClusterImage,
    broker_id: int,
    lost: Collection[TopicIdPartition],
    served: Collection[TopicIdPartition],
    context: CommandContext,
) -> list[Message]:
    """Of what is lost the broker leads nothing and, unless it was the last, is not in sync; what it serves it may lead
    again."""
    layers = context.layers(image)
    records: list[Message] = []
    for topic_id, index in sorted({*lost, *served}):
        partition = image.partition(topic_id, index)
        if partition is None or broker_id not in partition.replicas:
            continue
        is_lost = (topic_id, index) in lost
        if is_lost == (partition.directory(broker_id) == LOST_DIRECTORY):
            continue
        wanted = _on_disk(partition, broker_id, LOST_DIRECTORY if is_lost else UNASSIGNED_DIRECTORY)
        if is_lost:
            others = tuple(replica for replica in partition.isr if replica != broker_id)
            wanted = wanted._replace(isr=others or partition.isr)
        policy = election_policy(image, image.topics_by_id[topic_id].name, layers)
        record = change(
            topic_id,
            index,
            partition,
            wanted,
            active=image.is_active,
            election=Election.UNCLEAN if policy.unclean else Election.ONLINE,
            bump_leader_epoch=image.levels.bumps_leader_epoch,
        )
        assert record is not None, "the directory is another one"
        records.append(record)
    return records


def all_found(image: ClusterImage, broker_id: int, context: CommandContext) -> list[Message]:
    """The broker is gone, or another incarnation is there: nothing is known of its disks."""
    lost = [
        (topic.id, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.directories and partition.directory(broker_id) == LOST_DIRECTORY
    ]
    return replicas_found(image, broker_id, (), lost, context)


def _on_disk(partition: PartitionRegistration, broker_id: int, directory: Uuid) -> PartitionRegistration:
    known = partition.directories or (UNASSIGNED_DIRECTORY,) * len(partition.replicas)
    directories = tuple(
        directory if replica == broker_id else other for replica, other in zip(partition.replicas, known, strict=True)
    )
    return partition._replace(directories=directories if LOST_DIRECTORY in directories else ())
