"""The append that the three paths of Produce share: the general path (`produce`), the fast path (`produce_fast_path`)
and transactional batches (`produce_transactional`).

Follows Kafka's ReplicaManager.appendRecords. Owns the checks before the append, the response for each partition, and
the wait for acks; leaves the append itself to the `Partition`. The fast path calls `append_usual_batch`, the others
`append`; a test compares their responses byte for byte.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from odradek_broker.apis.context import BrokerServices, ClientConnection, Context
from odradek_broker.apis.produce_records import has_whole_entry, is_one_batch, validate_records
from odradek_broker.deferred import Deferred
from odradek_broker.memory import ROOM_PER_CONVERTED_BYTE
from odradek_broker.metadata.view import INTERNAL_TOPICS
from odradek_broker.replication.partition import Partition
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_log.append import AppendInfo, Rejection
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.attributes import COMPRESSION_MASK
from odradek_wire.records.batch import ATTRIBUTES_LOW_BYTE, HEADER_SIZE, MAGIC, MAGIC_POSITION
from odradek_wire.uuid import Uuid

if TYPE_CHECKING:
    from odradek_broker.transactions.transaction_verification import TransactionVerification

PartitionProduceResponse = ProduceResponse.PartitionProduceResponse
TopicProduceResponse = ProduceResponse.TopicProduceResponse
WaitingPartitions = list[tuple[Partition, int, PartitionProduceResponse]]

ACKS_ALL = -1
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_IDS = 13
NO_CURRENT_LEADER = ProduceResponse.LeaderIdAndEpoch()
"""Shared by all responses without an error; never changed."""
# Base offset, log append time, log start offset.
APPENDED_OFFSETS = Struct(">qqq")
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""

# Errors that Kafka returns without the log start offset.
WITHOUT_LOG_START_OFFSET = frozenset(
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


REPORTED_AS_NOT_ENOUGH_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a transaction coordinator for which the response has NOT_ENOUGH_REPLICAS: after that error every producer
retries, without a Metadata request."""


def append_usual_batch(
    broker: BrokerServices, connection: ClientConnection, partition: Partition, records: memoryview
) -> bytes | None:
    """Append one batch without a transaction to a partition with a single replica.

    Return the base offset, append time and log start offset as the response encodes them; None if the batch needs
    `append`, and then it is unchanged. `needs_full_checks` and `is_sole_replica` are shortcuts of the ISR rule, which
    `partition_leader` lists."""
    leader = partition.leader
    authorizer = broker.authorizer
    if (
        partition.needs_full_checks
        or leader is None
        or not leader.is_sole_replica
        or partition.log.config.rules.sets_append_time  # that changes a batch which the log may refuse afterwards
        or not (
            authorizer.allows_everything
            or authorizer.allows(
                connection.principal, connection.address, Operation.WRITE, ResourceType.TOPIC, partition.topic
            )
        )
        or len(records) < HEADER_SIZE
        or records[MAGIC_POSITION] != MAGIC
    ):
        return None
    result: Any = partition.append(records)
    if result.__class__ is not AppendInfo:
        return None
    first_offset, _, append_time, start_offset, _ = result
    return APPENDED_OFFSETS.pack(first_offset, append_time, start_offset)


def append(
    ctx: Context, request: ProduceRequest, verification: TransactionVerification | None = None
) -> ProduceResponse | Deferred[ProduceResponse] | None:
    """Append the records of a request, and return its response, None with acks=0. `verification` has the guards and
    errors of transactional batches, if there are any. The caller has called `require_room`."""
    acks = request.acks
    if acks not in (ACKS_ALL, 1, 0):
        return error_response(ctx, request, ErrorCode.INVALID_REQUIRED_ACKS)
    version = ctx.api_version
    broker = ctx.broker
    partitions = broker.partitions
    find = partitions.get_by_id if version >= FIRST_VERSION_WITH_IDS else partitions.get
    everything_allowed = broker.authorizer.allows_everything
    topics = []
    waiting: WaitingPartitions | None = None
    has_errors = False
    for topic in request.topic_data:
        key: Any = topic.topic_id if version >= FIRST_VERSION_WITH_IDS else topic.name
        partition_responses = []
        for data in topic.partition_data:
            index = data.index
            partition = find(key, index)
            if partition is None:
                partition_response = _partition_error_response(
                    ctx, key, index, _missing_partition_error(ctx, key, index)
                )
            elif not everything_allowed and not ctx.may_topic(Operation.WRITE, partition.topic):
                partition_response = PartitionProduceResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
            elif partition.error:
                partition_response = _partition_error_response(ctx, key, index, partition.error)
            else:
                partition_response = _append(ctx, partition, data, version, acks, verification)
            if partition_response.error_code:
                has_errors = True
            elif partition is not None and (
                partition.high_watermark < partition.log.log_end_offset
                if acks == ACKS_ALL
                else acks == 1 and partition.waits_for_disk
            ):
                waiting = waiting or []
                waiting.append((partition, partition.log.log_end_offset, partition_response))
            partition_responses.append(partition_response)
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, partition_responses))
    response = ProduceResponse(topics)
    if has_errors:
        if acks == 0:
            # The client reads no response: close the connection to report the error, as Kafka does.
            ctx.connection.close()
            return None
        if version >= FIRST_VERSION_WITH_LEADERS:
            _add_leader_endpoints(ctx, response)
    if acks == 0:
        return None
    return response if waiting is None else _wait(ctx, request, response, waiting)


def require_room(ctx: Context, request: ProduceRequest) -> None:
    """Raise MemoryExhausted if there is no room to decompress or convert a batch of the request that may need it."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                size = ROOM_PER_CONVERTED_BYTE * len(data.records)
                if not ctx.connection.has_room(size) and _may_be_decompressed(ctx, topic, data):
                    ctx.connection.require_room(size)


def _may_be_decompressed(
    ctx: Context, topic: ProduceRequest.TopicProduceData, data: ProduceRequest.PartitionProduceData
) -> bool:
    """Return whether the append may decompress or convert these records, as it may with every compressed batch: the log
    decides that by the topic's settings and by the batch, such as its timestamps."""
    records: Any = data.records
    if len(records) <= ATTRIBUTES_LOW_BYTE:
        return False
    if records[MAGIC_POSITION] != MAGIC or records[ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK:
        return True
    partitions = ctx.broker.partitions
    by_id = ctx.api_version >= FIRST_VERSION_WITH_IDS
    key: Any = topic.topic_id if by_id else topic.name
    partition = partitions.get_by_id(key, data.index) if by_id else partitions.get(key, data.index)
    return partition is not None and not partition.error and partition.log.config.rules.compression is not None


def _append(
    ctx: Context,
    partition: Partition,
    data: ProduceRequest.PartitionProduceData,
    version: int,
    acks: int,
    verification: TransactionVerification | None,
) -> PartitionProduceResponse:
    """Append the records of one partition, and return the partition's part of the response."""
    index = data.index
    records: Any = data.records
    guard = None
    if verification is not None:
        topic_partition = partition.topic, partition.index
        error = verification.errors.get(topic_partition)
        if error is not None:
            return _verification_error(index, error, verification)
        guard = verification.guards.get(topic_partition)
    # The batches of current clients need none of these checks.
    if (
        version < 7
        or records is None
        or len(records) < HEADER_SIZE
        or records[MAGIC_POSITION] != MAGIC
        or partition.needs_full_checks
    ):
        error, message = _error_before_append(ctx, partition, records, version, acks)
        if error:
            # ReplicaManager.processFailedRecord adds the log start offset to this error.
            start = partition.log_start_offset if error is ErrorCode.NOT_ENOUGH_REPLICAS else -1
            return PartitionProduceResponse(
                index, error, -1, log_start_offset=start, error_message=message, current_leader=NO_CURRENT_LEADER
            )
        if version < 3 and not has_whole_entry(records):
            # Kafka appends nothing, and returns no error.
            return PartitionProduceResponse(index, ErrorCode.NONE, -1)
    result = partition.append(records, guard=guard)
    if result.__class__ is AppendInfo:
        first_offset, _, append_time, start_offset, _ = result
        return PartitionProduceResponse(
            index, 0, first_offset, append_time, start_offset, current_leader=NO_CURRENT_LEADER
        )
    assert isinstance(result, Rejection)
    has_log_start_offset = result.error not in WITHOUT_LOG_START_OFFSET and is_one_batch(records)
    message = result.message if result.record_errors else None
    if result.error == ErrorCode.CORRUPT_MESSAGE and message is None and version >= 3:
        message = validate_records(records, version)[1]  # a batch of this magic can state an impossible size
    return PartitionProduceResponse(
        index,
        result.error,
        -1,
        log_start_offset=partition.log_start_offset if has_log_start_offset else -1,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(fault.batch_index, fault.message)
            for fault in result.record_errors
        ],
        error_message=message,
    )


def _verification_error(
    index: int, error: ErrorCode, verification: TransactionVerification
) -> PartitionProduceResponse:
    message = None
    concurrent = error == ErrorCode.CONCURRENT_TRANSACTIONS and not verification.operation.adds
    if concurrent or error in REPORTED_AS_NOT_ENOUGH_REPLICAS:
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        error = ErrorCode.NOT_ENOUGH_REPLICAS
    elif error == ErrorCode.INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    return PartitionProduceResponse(index, error, -1, error_message=message)


def _error_before_append(
    ctx: Context, partition: Partition, records: Any, version: int, acks: int
) -> tuple[ErrorCode, str | None]:
    """Return the error that Kafka finds before the append, and its message (ProduceRequest, ReplicaManager)."""
    if version >= 3:
        error, message = validate_records(records, version)
        if error:
            return error, message
    elif records is None:
        return ErrorCode.CORRUPT_MESSAGE, None
    if partition.topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, None
    leader = partition.leader
    if acks == ACKS_ALL and leader is not None and leader.under_min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS, None
    return ErrorCode.NONE, None


def _wait(
    ctx: Context, request: ProduceRequest, response: ProduceResponse, waiting: WaitingPartitions
) -> Deferred[ProduceResponse]:
    """Respond when every in-sync replica has the records (acks=all), when they are on the disk (acks=1 with
    `odradek.sync=always`), or after the client's timeout."""
    acknowledged_offset = _high_watermark if request.acks == ACKS_ALL else _recovery_point
    epochs = [partition.leader_epoch for partition, _, _ in waiting]

    def attempt() -> ProduceResponse | None:
        for (partition, end_offset, partition_response), epoch in zip(waiting, epochs, strict=True):
            if partition.error or partition.leader_epoch != epoch:
                partition_response.error_code = partition.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif acknowledged_offset(partition) < end_offset:
                return None
            elif request.acks == ACKS_ALL and partition.leader is not None and partition.leader.under_min_isr:
                partition_response.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return response

    def expire() -> ProduceResponse:
        for partition, end_offset, partition_response in waiting:
            if acknowledged_offset(partition) < end_offset:
                partition_response.error_code = ErrorCode.REQUEST_TIMED_OUT
                partition_response.base_offset = -1
        return response

    watched = [partition.watchers for partition, _, _ in waiting]
    return ctx.broker.purgatory.watch(watched, attempt, expire, request.timeout_ms)


def _high_watermark(partition: Partition) -> int:
    return partition.high_watermark


def _recovery_point(partition: Partition) -> int:
    return partition.log.recovery_point


def _missing_partition_error(ctx: Context, key: str | Uuid, index: int) -> ErrorCode:
    """Return the error for a partition without a replica on this broker."""
    image = ctx.broker.image
    if ctx.api_version >= FIRST_VERSION_WITH_IDS and key not in image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    missing = image.partition(key, index) is None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _partition_error_response(ctx: Context, key: str | Uuid, index: int, error: ErrorCode) -> PartitionProduceResponse:
    """Return the partition's part of the response, with the leader if it is another broker (KIP-951)."""
    partition_response = PartitionProduceResponse(index, error, -1)
    if error != ErrorCode.NOT_LEADER_OR_FOLLOWER or ctx.api_version < FIRST_VERSION_WITH_LEADERS:
        return partition_response
    registration = ctx.broker.image.partition(key, index)
    if registration is not None:
        partition_response.current_leader = ProduceResponse.LeaderIdAndEpoch(
            registration.leader, registration.leader_epoch
        )
    return partition_response


def _add_leader_endpoints(ctx: Context, response: ProduceResponse) -> None:
    """Add the addresses of the leaders that the response names, so that the client needs no Metadata (KIP-951)."""
    named = {
        partition_response.current_leader.leader_id
        for topic in response.responses
        for partition_response in topic.partition_responses
        if partition_response.error_code and partition_response.current_leader.leader_id >= 0
    }
    for broker_id in sorted(named):
        broker = ctx.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoint(ctx.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
            )


def error_response(
    ctx: Context, request: ProduceRequest, error: ErrorCode, message: str | None = None
) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    PartitionProduceResponse(data.index, error, -1, error_message=message)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
