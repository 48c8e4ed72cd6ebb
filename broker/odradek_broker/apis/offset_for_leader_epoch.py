"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, by which consumers and followers detect truncation.

Versions: v1 returns leader epochs (KIP-279), v2 has the client's leader epoch (KIP-320), v3 the replica id, v4 is
flexible.
Behaviour: the end offset of the largest epoch that is not above the requested one; -1 if there is none.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset
OffsetForLeaderPartition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
OffsetForLeaderTopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    # Brokers have CLUSTER_ACTION, and need no permission for the topics.
    by_broker = ctx.may_cluster(Operation.CLUSTER_ACTION)
    topics = []
    for topic in request.topics:
        if by_broker or ctx.may_topic(Operation.DESCRIBE, topic.topic):
            ends = [_end_offset(ctx, topic.topic, wanted) for wanted in topic.partitions]
        else:
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ends = [EpochEndOffset(refusal, wanted.partition) for wanted in topic.partitions]
        topics.append(OffsetForLeaderTopicResult(topic.topic, ends))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_offset(ctx: Context, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = ctx.broker.partitions.get(topic, wanted.partition)
    if partition is None:
        exists = ctx.broker.image.partition(topic, wanted.partition) is not None
        return EpochEndOffset(
            ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.partition
        )
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    if error:
        return EpochEndOffset(error, wanted.partition)
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(ErrorCode.NONE, wanted.partition, epoch, end_offset)


def error_response(
    ctx: Context, request: OffsetForLeaderEpochRequest, error: ErrorCode
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [EpochEndOffset(error, wanted.partition) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


API = Api(
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
