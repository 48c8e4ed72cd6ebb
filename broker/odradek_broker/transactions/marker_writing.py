"""A transaction ends in one partition that this broker leads: its marker is appended, for all replicas in sync to have.

The one way in for markers, whether they come from another broker (`apis.write_txn_markers`) or from a coordinator of
this one (`markers`). Leaves to the partition whether a marker is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.deferred import Deferred
from odradek_log.append import AppendRejected
from odradek_log.producer_state import TransactionMarker
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.broker import Broker


def write_marker(broker: Broker, topic: str, index: int, marker: TransactionMarker) -> ErrorCode | Deferred[ErrorCode]:
    """NONE once it is replicated, REQUEST_TIMED_OUT if that takes longer than `request.timeout.ms`; or why it is not
    written."""
    partition = broker.partitions.get(topic, index)
    if partition is None or partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
        # Also of a partition that other brokers have: the coordinator asks for its leader anew.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = partition.end_transaction(marker)
    if isinstance(result, AppendRejected):
        return result.error
    end_offset = partition.log_end_offset
    if partition.high_watermark >= end_offset:
        return ErrorCode.NONE
    return partition.wait_for_high_watermark(end_offset, broker.config.integer("request.timeout.ms"))
