"""Replicas on failed disks of live brokers in ZooKeeper mode, which has no directory ids.

A broker returns KAFKA_STORAGE_ERROR for each such replica in its LeaderAndIsr response. The image then has the replica
in LOST_DIRECTORY. That is not stored: the next controller asks the brokers again, and a broker that registers again
counts as a broker without failed disks. Source: KafkaController.processLeaderAndIsrResponseReceived.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek_wire.message import Message
from odradek_wire.uuid import Uuid

from ..election import Election, partition_change_record
from ..image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage, PartitionRegistration
from .context import CommandContext
from .policy import election_policy

TopicIdPartition = tuple[Uuid, int]


def apply_replica_report(
    image: ClusterImage,
    broker_id: int,
    lost: Collection[TopicIdPartition],
    served: Collection[TopicIdPartition],
    context: CommandContext,
) -> list[Message]:
    """Return the records for a broker's report of its replicas.

    The broker no longer leads the partitions of `lost` replicas, and leaves their ISR unless it is the last member. It
    may lead those of `served` replicas again.
    """
    layers = context.layers(image)
    records: list[Message] = []
    for topic_id, index in sorted({*lost, *served}):
        partition = image.partition(topic_id, index)
        if partition is None or broker_id not in partition.replicas:
            continue
        is_lost = (topic_id, index) in lost
        if is_lost == (partition.directory(broker_id) == LOST_DIRECTORY):
            continue
        wanted = _with_directory(partition, broker_id, LOST_DIRECTORY if is_lost else UNASSIGNED_DIRECTORY)
        if is_lost:
            others = tuple(replica for replica in partition.isr if replica != broker_id)
            wanted = wanted._replace(isr=others or partition.isr)
        policy = election_policy(image, image.topics_by_id[topic_id].name, layers)
        record = partition_change_record(
            topic_id,
            index,
            partition,
            wanted,
            active=image.is_active,
            election=Election.UNCLEAN if policy.unclean else Election.ONLINE,
            bump_leader_epoch=image.levels.bumps_leader_epoch,
        )
        assert record is not None, "the directory has changed"
        records.append(record)
    return records


def forget_lost_replicas(image: ClusterImage, broker_id: int, context: CommandContext) -> list[Message]:
    """Return the records for a broker that is gone or has restarted: none of its replicas counts as lost."""
    lost = [
        (topic.id, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.directories and partition.directory(broker_id) == LOST_DIRECTORY
    ]
    return apply_replica_report(image, broker_id, (), lost, context)


def _with_directory(partition: PartitionRegistration, broker_id: int, directory: Uuid) -> PartitionRegistration:
    known = partition.directories or (UNASSIGNED_DIRECTORY,) * len(partition.replicas)
    directories = tuple(
        directory if replica == broker_id else other for replica, other in zip(partition.replicas, known, strict=True)
    )
    return partition._replace(directories=directories if LOST_DIRECTORY in directories else ())
