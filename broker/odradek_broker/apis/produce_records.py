"""The records of a Produce request, before the log reads them.

Owns the checks of their first entry, a batch or a message of the old formats, in the order of Kafka's
ByteBufferLogInputStream and ProduceRequest.validateRecords. Leaves the contents of a whole batch to the log.
"""

from __future__ import annotations

from typing import Any

from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import COMPRESSION_MASK
from odradek_wire.records.batch import ATTRIBUTES_LOW_BYTE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION, entry_size_at
from odradek_wire.records.record_errors import CorruptRecordError

ENTRY_SIZE_MIN = 14
"""The smallest size that an entry can state (LegacyRecord.RECORD_OVERHEAD_V0)."""
ZSTD = 4


def validate_records(records: Any, version: int) -> tuple[ErrorCode, str | None]:
    """Return the error of records that do not begin with a batch, and its message. Versions before 3 have no such
    check. An incomplete batch is an error of the log."""
    if records is None or len(records) < LOG_OVERHEAD:
        return ErrorCode.INVALID_RECORD, None
    size = int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True)
    if size < ENTRY_SIZE_MIN:
        message = f"Record size {size} is less than the minimum record overhead ({ENTRY_SIZE_MIN})"
        return ErrorCode.CORRUPT_MESSAGE, message
    if len(records) <= MAGIC_POSITION:
        return ErrorCode.INVALID_RECORD, None
    magic = int.from_bytes(records[MAGIC_POSITION : MAGIC_POSITION + 1], "big", signed=True)
    if not 0 <= magic <= MAGIC:
        return ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}"
    if magic != MAGIC:
        return ErrorCode.INVALID_RECORD, None
    if version < 7 and len(records) > ATTRIBUTES_LOW_BYTE:
        codec = records[ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK
        if codec >= ZSTD:
            # A codec above zstd is an unexpected exception in Kafka.
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if codec == ZSTD else ErrorCode.UNKNOWN_SERVER_ERROR, None
    return ErrorCode.NONE, None


def has_whole_entry(records: bytes | memoryview) -> bool:
    """Return whether the log has an entry to append or to refuse. In versions before 3 Kafka ignores records without a
    whole entry."""
    try:
        size = entry_size_at(records)
    except CorruptRecordError:
        return True
    if size is None or len(records) <= MAGIC_POSITION:
        return False
    return len(records) >= size or records[MAGIC_POSITION] > MAGIC


def is_one_batch(records: bytes | memoryview) -> bool:
    """Return whether the records are exactly one whole batch. Kafka refuses others before it looks for the log."""
    return int.from_bytes(records[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD == len(records)
