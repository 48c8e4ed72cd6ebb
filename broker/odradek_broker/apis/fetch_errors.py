"""The errors that a Fetch finds before it reads the log of a partition, and the response for a partition with an error.

Owns the checks of Kafka's KafkaApis.handleFetchRequest and Partition.fetchRecords: the partition exists, the client is
authorized, this broker leads the partition in the client's leader epoch, the version of the request can have the
partition's compression, and a follower is a replica. Leaves errors of reading to `fetch_read`, and errors of sessions
to `fetch_context`.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.context import Context
from odradek_broker.replication.core.fetch_session import FetchedPartition
from odradek_broker.replication.follower_fetches import Follower
from odradek_broker.replication.partition import Partition
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchResponse

PartitionData: TypeAlias = FetchResponse.PartitionData

FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_FOLLOWER_READS = 11
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
ERRORS_BEFORE_READING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""With these errors Kafka returns an empty list of aborted transactions, with others null."""


def fetch_error(ctx: Context, partition: Partition, wanted: FetchedPartition, follower: Follower | None) -> ErrorCode:
    """Return the error for a partition with a replica on this broker; NONE if the client may read it."""
    if not ctx.broker.authorizer.allows_everything and not ctx.may_topic(Operation.READ, partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    version, epoch = ctx.api_version, wanted.leader_epoch
    if partition.error or epoch not in (-1, partition.leader_epoch):
        error = partition.check_leader_epoch(epoch)
        # A consumer may read a follower's committed records, whether or not there is a leader (KIP-392).
        is_follower = error == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.served_log is not None
        if not (is_follower and follower is None and version >= FIRST_VERSION_WITH_FOLLOWER_READS):
            return error
    if version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE if follower is None else follower.error(partition, epoch)


def missing_partition_error(ctx: Context, wanted: FetchedPartition) -> ErrorCode:
    """Return the error for a partition without a replica on this broker."""
    image = ctx.broker.image
    if ctx.api_version >= FIRST_VERSION_WITH_IDS and wanted.topic not in image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if image.partition(wanted.topic, wanted.index) is None:  # type: ignore[arg-type]  # a name or an id
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def error_data(ctx: Context, wanted: FetchedPartition, error: ErrorCode) -> PartitionData:
    """Return the partition's part of the response, with the leader if it is another broker (KIP-951)."""
    data = PartitionData(
        partition_index=wanted.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=[] if error in ERRORS_BEFORE_READING else None,
        records=b"",
    )
    if ctx.api_version >= FIRST_VERSION_WITH_LEADERS and error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        registration = ctx.broker.image.partition(wanted.topic, wanted.index)  # type: ignore[arg-type]  # as above
        if registration is not None:
            data.current_leader = FetchResponse.LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
    return data


def add_leader_endpoints(
    ctx: Context, response: FetchResponse, sent: list[tuple[FetchedPartition, PartitionData]]
) -> None:
    """Add the addresses of the leaders that the response names (KIP-951)."""
    for broker_id in sorted({data.current_leader.leader_id for _, data in sent if data.error_code}):
        broker = ctx.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoint(ctx.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            response.node_endpoints.append(
                FetchResponse.NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
            )
