"""DeleteRecords (key 21), versions 0-2: nothing below an offset is served any more; -1 means everything committed."""

from __future__ import annotations

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_broker.metadata_view import INTERNAL_TOPICS
from odradek_broker.partition import DISK_TROUBLE
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                topic.name,
                [_delete(ctx, topic.name, wanted.partition_index, wanted.offset) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(ctx: Context, topic: str, index: int, offset: int) -> Answer:
    if not ctx.may_topic(Operation.DELETE, topic):
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if ctx.broker.image.partition(topic, index) is None:
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = ctx.broker.partitions.get(topic, index)
    if partition is None:
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.error:
        return Answer(index, NO_LOW_WATERMARK, partition.error)
    leader, log = partition.leader, partition.log
    assert leader is not None, "a partition without error is led here"
    if not log.config.delete:
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION)
    wanted = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= partition.high_watermark:
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        log.advance_log_start_offset(wanted)
    except DISK_TROUBLE:
        partition.take_offline()
        return Answer(index, NO_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
    partition.wake()
    return Answer(index, leader.low_watermark(log.log_start_offset), ErrorCode.NONE)


def failed(ctx: Context, request: DeleteRecordsRequest, error: ErrorCode) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                topic.name,
                [Answer(wanted.partition_index, NO_LOW_WATERMARK, error) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, handle, failed=failed)
