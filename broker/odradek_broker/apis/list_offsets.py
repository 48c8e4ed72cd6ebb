"""ListOffsets (key 2): find the earliest or the latest offset, or the offset of a timestamp.

Versions: v0 has lists of segment boundaries, newest first; v1 single offsets and their timestamps; v2
`isolation_level`, v4 leader epochs (KIP-320), v6 is flexible, v7 has the largest timestamp (KIP-734), v8 the earliest
local offset (KIP-405), v9 the latest tiered offset (KIP-1005), v10 a timeout (KIP-1075), v11 the earliest pending
upload (KIP-1023).
Behaviour: consumers see offsets up to the high watermark or the last stable offset, replicas up to the log end offset.
A leader that has not yet committed its first offset responds OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5).
The record with the largest timestamp may be below the log start offset.
Differences from Kafka: no segment is tiered, so that the earliest local offset is the earliest offset, and the latest
tiered offset and the earliest pending upload are -1.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

ListOffsetsPartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse
ListOffsetsPartition = ListOffsetsRequest.ListOffsetsPartition


class OffsetSpec(IntEnum):
    """The negative timestamps, which ask for an offset by its meaning (Kafka's ListOffsetsRequest)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


FIRST_VERSION = {
    OffsetSpec.LATEST: 0,
    OffsetSpec.EARLIEST: 0,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
CONSUMER = -1
"""The replica id of a consumer."""
READ_COMMITTED = 1


def handle(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    occurrences = Counter(
        (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
    )
    topics = []
    for topic in request.topics:
        allowed = ctx.may_topic(Operation.DESCRIBE, topic.name)
        responses: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            if not allowed:
                responses.append(_error(ctx, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif occurrences[topic.name, wanted.partition_index] > 1:
                repeated = _error(ctx, wanted, ErrorCode.INVALID_REQUEST)
                if repeated not in responses:
                    responses.append(repeated)
            else:
                responses.append(_partition(ctx, request, topic.name, wanted))
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(topic.name, responses))
    return ListOffsetsResponse(topics=topics)


def _partition(
    ctx: Context, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    timestamp = wanted.timestamp
    if timestamp < 0 and (timestamp not in FIRST_VERSION or ctx.api_version < FIRST_VERSION[OffsetSpec(timestamp)]):
        return _error(ctx, wanted, ErrorCode.UNSUPPORTED_VERSION)
    partition = ctx.broker.partitions.get(topic, wanted.partition_index)
    if partition is None:
        exists = ctx.broker.image.partition(topic, wanted.partition_index) is not None
        missing = ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _error(ctx, wanted, missing)
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    if error:
        return _error(ctx, wanted, error)
    limit = partition.log_end_offset
    not_available = ErrorCode.NONE
    if request.replica_id == CONSUMER:
        read_committed = request.isolation_level == READ_COMMITTED
        limit = partition.last_stable_offset if read_committed else partition.high_watermark
        if partition.is_behind_epoch_start:
            # The previous leader may have returned offsets that this one does not yet know to be committed.
            not_available = ErrorCode.OFFSET_NOT_AVAILABLE if ctx.api_version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    if not_available and timestamp == OffsetSpec.LATEST:
        return _error(ctx, wanted, not_available)
    try:
        if ctx.api_version == 0:
            offsets = _boundaries(partition, timestamp, wanted.max_num_offsets, limit)
            return ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.NONE, offsets)
        offset, offset_timestamp, epoch = _look_up(partition, timestamp, limit)
    except STORAGE_ERRORS:
        partition.take_offline()
        return _error(ctx, wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    if not_available and offset < 0 and timestamp not in (OffsetSpec.LATEST_TIERED, OffsetSpec.EARLIEST_PENDING_UPLOAD):
        return _error(ctx, wanted, not_available)
    if ctx.api_version < 4:
        epoch = -1
    return ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.NONE, [], offset_timestamp, offset, epoch)


def _look_up(partition: Partition, timestamp: int, limit: int) -> tuple[int, int, int]:
    """Return offset, timestamp and leader epoch; -1 for all three if there is no such record below `limit`."""
    match timestamp:
        case OffsetSpec.LATEST:
            return limit, -1, partition.leader_epoch
        case OffsetSpec.EARLIEST | OffsetSpec.EARLIEST_LOCAL:
            start = partition.log_start_offset
            epoch = partition.log.leader_epochs.epoch_for_offset(start)
            return start, -1, -1 if epoch is None else epoch
        case OffsetSpec.MAX_TIMESTAMP:
            found = partition.log.offset_of_max_timestamp()
        case OffsetSpec.LATEST_TIERED | OffsetSpec.EARLIEST_PENDING_UPLOAD:
            return -1, -1, -1
        case _:
            found = partition.log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= limit:
        return -1, -1, -1
    return found


def _boundaries(partition: Partition, timestamp: int, count: int, limit: int) -> list[int]:
    """Return up to `count` segment boundaries that are not after `timestamp`, newest first (v0): the base offsets of
    segments, and the log end offset."""
    log = partition.log
    segments = log.segments
    entries = [
        (max(segment.base_offset, log.log_start_offset), segment.retention_timestamp() if segment.size else 0)
        for segment in segments
    ]
    if segments[-1].size:
        entries.append((log.log_end_offset, (1 << 63) - 1))
    if timestamp == OffsetSpec.LATEST:
        last = len(entries) - 1
    elif timestamp == OffsetSpec.EARLIEST:
        last = 0
    else:
        last = max((index for index, (_, time) in enumerate(entries) if time <= timestamp), default=-1)
    offsets = [offset for offset, _ in entries[max(last + 1 - max(count, 0), 0) : last + 1]]
    offsets.sort(reverse=True)
    if offsets and offsets[0] > limit:
        offsets = [limit, *(offset for offset in offsets if offset <= limit)][: max(count, 0)]
    return offsets


def _error(ctx: Context, wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(wanted.partition_index, error)


def error_response(ctx: Context, request: ListOffsetsRequest, error: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                topic.name, [_error(ctx, wanted, error) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


API = Api(
    ListOffsetsRequest,
    ListOffsetsResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
