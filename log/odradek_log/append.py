"""The result of an append: AppendInfo, or the Rejection of `odradek_wire.records.log_validator`.

The validator rejects a batch for its content, the log for its size or for the state of its producer.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_log.log_config import LogConfig
from odradek_wire.errors import ErrorCode
from odradek_wire.records.log_validator import RecordError, Rejection

__all__ = ["NOTHING_APPENDED", "AppendInfo", "RecordError", "Rejection", "too_large"]


class AppendInfo(NamedTuple):
    """The offsets of the appended records; for a duplicate, those of the earlier append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 with CreateTime, except for a duplicate, which has the largest timestamp of its batch, as in Kafka."""
    log_start_offset: int
    duplicate: bool = False


NOTHING_APPENDED = -1
"""The first and last offset for an empty message set of an old producer."""


def too_large(partition: str, size: int, config: LogConfig) -> Rejection:
    """Return the rejection of a batch that exceeds `max.message.bytes` or `segment.bytes`."""
    if size > config.max_message_bytes:
        return Rejection(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition} is {size} bytes which exceeds the maximum configured "
            f"value of {config.max_message_bytes}.",
        )
    return Rejection(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"The record batch size in the append to {partition} is {size} bytes, which exceeds the maximum configured "
        f"segment size of {config.segment_bytes}.",
    )
