"""Produce (key 0), versions 0-13: append batches to partitions that this broker leads.

The hot path: plain functions, and nothing waits unless acks=all has to (with one replica it never has to). Old message
formats (versions 0-2) are converted to batches before they are appended. Transactions are not served yet.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.metadata_view import INTERNAL_TOPICS
from odradek_broker.partition import Partition
from odradek_log.append import AppendInfo, AppendRejected
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.conversion import up_convert
from odradek_wire.records.errors import CorruptRecordError

PartitionAnswer = ProduceResponse.PartitionProduceResponse
TopicAnswer = ProduceResponse.TopicProduceResponse
Waiting = list[tuple[Partition, int, PartitionAnswer]]

ALL = -1
MAGIC_POSITION = 16
ATTRIBUTES_LOW_BYTE = 22
ZSTD = 4
ADMIN_CLIENT_ID = "__admin_client"
"""The one client that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""

# Errors that Kafka answers without the log's start offset; the others tell it.
WITHOUT_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def handle(ctx: Context, request: ProduceRequest) -> ProduceResponse | Deferred[ProduceResponse] | None:
    acks = request.acks
    if acks not in (0, 1, ALL):
        return failed(ctx, request, ErrorCode.INVALID_REQUIRED_ACKS)
    broker = ctx.broker
    version = ctx.api_version
    by_id = version >= 13
    partitions = broker.partitions
    everything_allowed = broker.authorizer.allows_everything
    topics = []
    waiting: Waiting = []
    for topic in request.topic_data:
        name = topic.name
        answers = []
        for data in topic.partition_data:
            index = data.index
            partition = partitions.get_by_id(topic.topic_id, index) if by_id else partitions.get(name, index)
            if partition is None:
                error = _why_not_here(ctx, topic, data.index)
                answers.append(_refused(ctx, topic, data.index, error))
                continue
            if not everything_allowed and not ctx.may_topic(Operation.WRITE, partition.topic):
                answers.append(PartitionAnswer(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1))
                continue
            answer = _append(ctx, partition, data, version, acks)
            if acks == ALL and not answer.error_code and partition.high_watermark < partition.log.log_end_offset:
                waiting.append((partition, partition.log.log_end_offset, answer))
            answers.append(answer)
        topics.append(TopicAnswer(name, topic.topic_id, answers))
    response = ProduceResponse(topics)
    if version >= 10:
        _add_endpoints(ctx, response)
    if acks == 0:
        # Nobody listens: an error can only be told by closing the connection, as Kafka does.
        if any(answer.error_code for topic_answer in topics for answer in topic_answer.partition_responses):
            ctx.connection.close()
        return None
    return _wait(ctx, request, response, waiting) if waiting else response


def _append(
    ctx: Context, partition: Partition, data: ProduceRequest.PartitionProduceData, version: int, acks: int
) -> PartitionAnswer:
    """Append one partition's records; the answer for that partition."""
    index = data.index
    if partition.error:
        return PartitionAnswer(index, partition.error, -1, current_leader=_leader(ctx, partition))
    records: Any = data.records
    error = _unacceptable(ctx, partition, records, version, acks)
    if error:
        return PartitionAnswer(index, error, -1)
    if version < 3 and records[MAGIC_POSITION] < 2:
        try:
            records = up_convert(records)
        except CorruptRecordError:
            return PartitionAnswer(index, ErrorCode.CORRUPT_MESSAGE, -1)
    result = partition.append(records)
    if result.__class__ is AppendInfo:
        return PartitionAnswer(index, 0, result.first_offset, result.log_append_time_ms, result.log_start_offset)
    assert isinstance(result, AppendRejected)
    return PartitionAnswer(
        index,
        result.error,
        -1,
        log_start_offset=-1 if result.error in WITHOUT_START else partition.log_start_offset,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(fault.batch_index, fault.message)
            for fault in result.record_errors
        ],
        error_message=result.message if result.record_errors else None,
    )


def _unacceptable(ctx: Context, partition: Partition, records: Any, version: int, acks: int) -> ErrorCode:
    """What Kafka checks before it looks at the log (ProduceRequest.validateRecords, ReplicaManager)."""
    if records is None or len(records) <= MAGIC_POSITION + 1:
        return ErrorCode.INVALID_RECORD if version >= 3 else ErrorCode.CORRUPT_MESSAGE
    if version >= 3:
        if records[MAGIC_POSITION] != 2:
            return ErrorCode.INVALID_RECORD
        if version < 7 and len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & 7 == ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if partition.topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    leader = partition.leader
    if acks == ALL and leader is not None and len(leader.isr) < partition.min_insync_replicas:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NONE


def _wait(
    ctx: Context, request: ProduceRequest, response: ProduceResponse, waiting: Waiting
) -> Deferred[ProduceResponse]:
    """acks=all: answer when every in-sync replica has the records, or at the client's timeout."""
    epochs = [partition.leader_epoch for partition, _, _ in waiting]

    def attempt() -> ProduceResponse | None:
        for (partition, end_offset, answer), epoch in zip(waiting, epochs, strict=True):
            if partition.error or partition.leader_epoch != epoch:
                answer.error_code = partition.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif partition.high_watermark < end_offset:
                return None
        return response

    def expire() -> ProduceResponse:
        for partition, end_offset, answer in waiting:
            if partition.high_watermark < end_offset:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                answer.base_offset = -1
        return response

    watched = [partition.watchers for partition, _, _ in waiting]
    return ctx.broker.purgatory.wait(watched, attempt, expire, request.timeout_ms)


def _why_not_here(ctx: Context, topic: ProduceRequest.TopicProduceData, index: int) -> ErrorCode:
    """No replica of it is on this broker: because it does not exist, or because it is elsewhere."""
    image = ctx.broker.image
    if ctx.api_version >= 13:
        if topic.topic_id not in image.topics_by_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        registration = image.partition(topic.topic_id, index)
    else:
        registration = image.partition(topic.name, index)
    if registration is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _refused(ctx: Context, topic: ProduceRequest.TopicProduceData, index: int, error: ErrorCode) -> PartitionAnswer:
    answer = PartitionAnswer(index, error, -1)
    if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        key = topic.topic_id if ctx.api_version >= 13 else topic.name
        registration = ctx.broker.image.partition(key, index)
        if registration is not None:
            answer.current_leader = ProduceResponse.LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
    return answer


def _leader(ctx: Context, partition: Partition) -> ProduceResponse.LeaderIdAndEpoch:
    """Where the client should go instead (KIP-951)."""
    registration = ctx.broker.image.partition(partition.topic_id, partition.index)
    if partition.error != ErrorCode.NOT_LEADER_OR_FOLLOWER or registration is None:
        return ProduceResponse.LeaderIdAndEpoch()
    return ProduceResponse.LeaderIdAndEpoch(registration.leader, registration.leader_epoch)


def _add_endpoints(ctx: Context, response: ProduceResponse) -> None:
    """The addresses of the leaders named in the answer, so that the client needs no Metadata to follow (KIP-951)."""
    named = {
        answer.current_leader.leader_id
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code and answer.current_leader.leader_id >= 0
    }
    for broker_id in sorted(named):
        broker = ctx.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoint(ctx.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
            )


def failed(ctx: Context, request: ProduceRequest, error: ErrorCode) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        [
            TopicAnswer(
                topic.name, topic.topic_id, [PartitionAnswer(data.index, error, -1) for data in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )


API = Api(ProduceRequest, ProduceResponse, handle, failed=failed, notes="No transactions.")
