"""Why a partition of a Fetch is refused before its log is read, and the response that says so.

Owns the checks of Kafka's KafkaApis.handleFetchRequest and Partition.fetchRecords: known, authorized, led here in the
leader epoch of the reader, readable in the version of the request; and that a follower is a replica. Leaves errors of
reading to `fetch_read`, errors of sessions to `fetch_context`.
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
FIRST_VERSION_WITH_FOLLOWERS = 11
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
BEFORE_READING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors found before the log is read: for these, Kafka returns an empty list of aborted transactions, for others
null."""


def refusal(ctx: Context, partition: Partition, wanted: FetchedPartition, follower: Follower | None) -> ErrorCode:
    """Return why this reader may not read the hosted partition now, or NONE."""
    if not ctx.broker.authorizer.allows_everything and not ctx.may_topic(Operation.READ, partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    version, epoch = ctx.api_version, wanted.leader_epoch
    if partition.error or epoch not in (-1, partition.leader_epoch):
        refused = partition.check_leader_epoch(epoch)
        # A consumer may read a follower's committed records, whether or not there is a leader (KIP-392).
        here = refused == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.served_log is not None
        if not (here and follower is None and version >= FIRST_VERSION_WITH_FOLLOWERS):
            return refused
    if version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE if follower is None else follower.error(partition, epoch)


def why_not_hosted(ctx: Context, wanted: FetchedPartition) -> ErrorCode:
    """Return the error for a partition without a replica on this broker."""
    image = ctx.broker.image
    if ctx.api_version >= FIRST_VERSION_WITH_IDS and wanted.topic not in image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if image.partition(wanted.topic, wanted.index) is None:  # type: ignore[arg-type]  # a name or an id
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def refused(ctx: Context, wanted: FetchedPartition, error: ErrorCode) -> PartitionData:
    """Return the partition's part of the response, with the leader if the client should go there (KIP-951)."""
    data = PartitionData(
        partition_index=wanted.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=[] if error in BEFORE_READING else None,
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


def add_endpoints(ctx: Context, response: FetchResponse, sent: list[tuple[FetchedPartition, PartitionData]]) -> None:
    """Add the addresses of the leaders that the response names (KIP-951)."""
    for broker_id in sorted({data.current_leader.leader_id for _, data in sent if data.error_code}):
        broker = ctx.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoint(ctx.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            response.node_endpoints.append(
                FetchResponse.NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
            )
