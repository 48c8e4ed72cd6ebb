"""What an append answers.

A rejection is the one of `odradek_wire.records.validation`, which judges what can be judged without the log; the log
adds its own (sizes, sequences) in the same form.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_wire.records.validation import RecordError
from odradek_wire.records.validation import Rejection as AppendRejected

__all__ = ["NOTHING_APPENDED", "AppendInfo", "AppendRejected", "RecordError"]


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
