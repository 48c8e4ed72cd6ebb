"""AssignReplicasToDirs: a broker reports the log directories of its replicas, or that they are lost (KIP-858)."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.uuid import Uuid

from ..election import Election, partition_change_record
from ..image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage
from .context import CommandContext
from .policy import election_policy


def assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest, context: CommandContext
) -> tuple[list[Message], AssignReplicasToDirsResponse]:
    """Record the directories. A broker that has lost a replica leaves the partition's leadership and ISR."""
    if not image.levels.directory_assignment:
        return [], AssignReplicasToDirsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [], AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    records: list[Message] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            results = []
            for requested in topic.partitions:
                partition_key = topic.topic_id, requested.partition_index
                outcome = _assign(image, request.broker_id, *partition_key, directory.id, context)
                if isinstance(outcome, PartitionChangeRecord):
                    records.append(outcome)
                error = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
                results.append(AssignReplicasToDirsResponse.PartitionData(requested.partition_index, error))
            topics.append(AssignReplicasToDirsResponse.TopicData(topic.topic_id, results))
        directories.append(AssignReplicasToDirsResponse.DirectoryData(directory.id, topics))
    return records, AssignReplicasToDirsResponse(directories=directories)


def _assign(
    image: ClusterImage, broker_id: int, topic_id: Uuid, index: int, directory: Uuid, context: CommandContext
) -> PartitionChangeRecord | ErrorCode | None:
    """Return None if the replica is in this directory already."""
    if topic_id not in image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = image.partition(topic_id, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    before = [partition.directory(replica) or UNASSIGNED_DIRECTORY for replica in partition.replicas]
    after = [
        directory if replica == broker_id else known for replica, known in zip(partition.replicas, before, strict=True)
    ]
    if after == list(partition.directories):
        return None
    isr = partition.isr
    if directory == LOST_DIRECTORY:
        isr = tuple(replica for replica in isr if replica != broker_id)
        if not isr and not image.levels.elr_enabled:
            isr = partition.isr
    policy = election_policy(image, image.topics_by_id[topic_id].name, context.layers(image))
    return partition_change_record(
        topic_id,
        index,
        partition,
        partition._replace(directories=tuple(after), isr=isr),
        active=image.is_active,
        election=Election.UNCLEAN if policy.unclean else Election.ONLINE,
        elr_enabled=image.levels.elr_enabled,
        min_isr=policy.min_isr,
        uncleanly_stopped_broker=broker_id if directory == LOST_DIRECTORY else None,
    )
