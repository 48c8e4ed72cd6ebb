"""DescribeQuorum: the leader, voters and end offset of the metadata log."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

from ..image import ClusterImage
from ..store import QuorumState
from .context import CommandContext
from .topic_names import METADATA_TOPIC

TopicData = DescribeQuorumResponse.TopicData
PartitionData = DescribeQuorumResponse.PartitionData
Node = DescribeQuorumResponse.Node


def describe_quorum(
    image: ClusterImage, request: DescribeQuorumRequest, context: CommandContext
) -> tuple[list[Message], DescribeQuorumResponse]:
    """Describe partition 0 of the metadata topic; every other requested partition is unknown."""
    quorum = context.quorum()
    topics = [
        TopicData(topic.topic_name, [_partition(topic.topic_name, p.partition_index, quorum) for p in topic.partitions])
        for topic in request.topics
    ]
    if not any(partition.error_code == ErrorCode.NONE for topic in topics for partition in topic.partitions):
        return [], DescribeQuorumResponse(topics=topics)
    nodes = [
        Node(controller.id, [DescribeQuorumResponse.Listener(e.name, e.host, e.port) for e in controller.listeners])
        for controller in image.controllers.values()
    ]
    return [], DescribeQuorumResponse(topics=topics, nodes=nodes)


def _partition(topic: str, index: int, quorum: QuorumState) -> PartitionData:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionData(
            index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    # The only voter is the leader, whose last caught-up time is now.
    voters = [
        DescribeQuorumResponse.ReplicaState(
            voter.id, voter.directory_id, quorum.log_end_offset, quorum.now_ms, quorum.now_ms
        )
        for voter in quorum.voters
    ]
    return PartitionData(
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
    )
