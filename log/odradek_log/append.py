"""What an append answers.

A rejection is the one of `odradek_wire.records.log_validator`, which judges what can be judged without the log; the log
adds its own (sizes, sequences) in the same form.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_log.log_config import LogConfig
from odradek_wire.errors import ErrorCode
from odradek_wire.records.log_validator import RecordError, Rejection

__all__ = ["NOTHING_APPENDED", "AppendInfo", "RecordError", "Rejection", "too_large"]


class AppendInfo(NamedTuple):
    """Where the records stand. For a duplicate: where they already stood; nothing was written."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime (a duplicate's is its batch's largest timestamp all the same, as in Kafka)."""
    log_start_offset: int
    duplicate: bool = False


NOTHING_APPENDED = -1
"""First and last offset when an old producer sent an empty message set."""


def too_large(partition: str, size: int, config: LogConfig) -> Rejection:
    """Of a batch that exceeds `max.message.bytes` or `segment.bytes`."""
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
