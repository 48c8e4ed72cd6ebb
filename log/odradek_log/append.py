"""What an append answers, and what a leader refuses by a batch's header alone.

Owns the answers' shapes and the checks that need no look at a record (LogValidator,
UnifiedLog.analyzeAndValidateRecords); the checks of single records are `odradek_wire.records.validation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek_log.config import LogConfig
from odradek_log.producer_state import AppendOrigin
from odradek_wire.errors import ErrorCode
from odradek_wire.records.batch import RecordBatchHeader


class AppendInfo(NamedTuple):
    """Where the records stand. For a duplicate: where they already stood; nothing was written."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime."""
    log_start_offset: int
    duplicate: bool = False


class RecordError(NamedTuple):
    """One record's fault, by its place in the batch."""

    batch_index: int
    message: str | None


@dataclass(frozen=True, slots=True)
class AppendRejected:
    """The producer's fault: nothing was written."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


def refuse_by_header(
    header: RecordBatchHeader, size: int, config: LogConfig, origin: AppendOrigin
) -> AppendRejected | None:
    """What a header alone proves wrong, in Kafka's order; None when nothing is."""
    client = origin is AppendOrigin.CLIENT
    if client and header.base_offset != 0:
        return AppendRejected(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch should be 0, but it is {header.base_offset}",
        )
    if size > config.max_message_bytes:
        return AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size} bytes which exceeds the maximum configured value of "
            f"{config.max_message_bytes}.",
        )
    if header.attributes & 0x07 > 4:
        return AppendRejected(ErrorCode.CORRUPT_MESSAGE, f"Unknown compression type id: {header.attributes & 0x07}")
    if header.last_offset_delta < 0:
        return AppendRejected(
            ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range of {header.last_offset_delta + 1}"
        )
    if header.count <= 0:
        return AppendRejected(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {header.count}")
    if header.count != header.last_offset_delta + 1:
        return AppendRejected(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records {header.count}",
        )
    if client:
        if header.attributes & 0x20:
            return AppendRejected(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
        if header.producer_id > -1 and header.base_sequence < 0:
            return AppendRejected(
                ErrorCode.INVALID_RECORD,
                f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}",
            )
    return None
