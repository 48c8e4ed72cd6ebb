"""A leader's append of a transaction marker, which ends the transaction in one partition.

Shared by WriteTxnMarkers requests of other brokers and by this broker's own transaction coordinator. Leaves the checks
of a marker to the partition.
"""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_log.append import Rejection
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode


def write_marker(
    partitions: Partitions, topic: str, index: int, marker: TransactionMarker, timeout_ms: int
) -> ErrorCode | Deferred[ErrorCode]:
    """Append a marker. Return NONE when all replicas in sync have it, REQUEST_TIMED_OUT if that takes longer than
    `timeout_ms`, or the error with which the partition refuses it."""
    partition = partitions.get(topic, index)
    if partition is None or partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
        # If another broker leads the partition, the coordinator finds that leader when it retries.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = partition.end_transaction(marker)
    if isinstance(result, Rejection):
        return result.error
    end_offset = partition.log_end_offset
    if partition.high_watermark >= end_offset:
        return ErrorCode.NONE
    return partition.wait_for_high_watermark(end_offset, timeout_ms)
