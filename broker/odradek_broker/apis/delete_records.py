"""DeleteRecords (key 21): delete the records below an offset; -1 is the high watermark.

Versions: v2 is flexible.
Behaviour: advances the log start offset, and responds when all live replicas have done so, or after `timeout_ms`
(DelayedDeleteRecords).
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.view import INTERNAL_TOPICS
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

DeleteRecordsPartitionResult = DeleteRecordsResponse.DeleteRecordsPartitionResult
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waiting: list[DeleteRecordsPartitionStatus] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            found = _delete(ctx, topic.name, wanted.partition_index, wanted.offset)
            if isinstance(found, DeleteRecordsPartitionStatus):
                waiting.append(found)
                found = found.result
            results.append(found)
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(topic.name, results))

    def attempt() -> DeleteRecordsResponse | None:
        return response if all(each.is_complete(ctx) for each in waiting) else None

    def expire() -> DeleteRecordsResponse:
        for each in waiting:
            if not each.is_complete(ctx):
                each.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    now = attempt()
    if now is not None:
        return now
    watched = [each.partition.watchers for each in waiting]
    return ctx.broker.purgatory.watch(watched, attempt, expire, request.timeout_ms)


class DeleteRecordsPartitionStatus:
    """One partition, whose replicas must advance their log start offsets to `required_offset`."""

    __slots__ = ("_complete", "_epoch", "partition", "required_offset", "result")

    def __init__(self, partition: Partition, required_offset: int, low_watermark: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.result = DeleteRecordsPartitionResult(partition.index, low_watermark, ErrorCode.NONE)
        self._epoch = partition.leader_epoch
        self._complete = False

    def is_complete(self, ctx: Context) -> bool:
        """Update the result, and return whether it is final."""
        if self._complete:
            return True
        partition, result = self.partition, self.result
        if partition.error or partition.leader_epoch != self._epoch:
            result.error_code = partition.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
            result.low_watermark = NO_LOW_WATERMARK
            self._complete = True
        else:
            low_watermark = _low_watermark(ctx, partition)
            if low_watermark >= self.required_offset:
                result.low_watermark = low_watermark
                self._complete = True
        return self._complete


def _delete(
    ctx: Context, topic: str, index: int, offset: int
) -> DeleteRecordsPartitionResult | DeleteRecordsPartitionStatus:
    if not ctx.may_topic(Operation.DELETE, topic):
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if ctx.broker.image.partition(topic, index) is None:
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = ctx.broker.partitions.get(topic, index)
    if partition is None:
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.error:
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, partition.error)
    log = partition.log
    if log.config.compact and not log.config.delete:  # an empty cleanup policy allows DeleteRecords
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION)
    required_offset = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= required_offset <= partition.high_watermark:
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        log.advance_log_start_offset(required_offset)
    except STORAGE_ERRORS:
        partition.take_offline()
        return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
    partition.log_start_offset_advanced()
    return DeleteRecordsPartitionStatus(partition, required_offset, _low_watermark(ctx, partition))


def _low_watermark(ctx: Context, partition: Partition) -> int:
    assert partition.leader is not None, "this broker leads a partition without an error"
    brokers = ctx.broker.image.brokers

    def is_alive(replica: int) -> bool:
        registration = brokers.get(replica)
        return registration is not None and not registration.fenced

    return partition.leader.low_watermark(partition.log_start_offset, is_alive)


def error_response(ctx: Context, request: DeleteRecordsRequest, error: ErrorCode) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                topic.name,
                [
                    DeleteRecordsPartitionResult(wanted.partition_index, NO_LOW_WATERMARK, error)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
