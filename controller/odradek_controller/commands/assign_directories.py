"""AssignReplicasToDirs: a broker says in which of its log directories replicas are (KIP-858)."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.uuid import Uuid

from ..image import UNASSIGNED_DIRECTORY, ClusterImage

Response = AssignReplicasToDirsResponse


def assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest
) -> tuple[list[Message], Response]:
    """Each partition by itself. Leaders and ISR stay: a directory that failed is not reported this way."""
    if not image.levels.directories:
        return [], Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [], Response(error_code=ErrorCode.STALE_BROKER_EPOCH)
    records: list[Message] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            results = []
            for asked in topic.partitions:
                found = _assign(image, request.broker_id, topic.topic_id, asked.partition_index, directory.id)
                if isinstance(found, PartitionChangeRecord):
                    records.append(found)
                error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
                results.append(Response.PartitionData(asked.partition_index, error))
            topics.append(Response.TopicData(topic.topic_id, results))
        directories.append(Response.DirectoryData(directory.id, topics))
    return records, Response(directories=directories)


def _assign(
    image: ClusterImage, broker_id: int, topic_id: Uuid, index: int, directory: Uuid
) -> PartitionChangeRecord | ErrorCode | None:
    """None: it is there already."""
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
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=after)
