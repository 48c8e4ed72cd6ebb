"""One partition, seen from a follower: the offset at which its log diverges from the leader's, to truncate to.

Pure functions over pairs of (epoch, end offset) as in OffsetForLeaderEpoch responses and the diverging epoch of Fetch
responses; -1 means unknown. A follower truncates to its high watermark only if the leader does not know the epoch,
because a truncation to the high watermark may lose acknowledged records (KIP-101, KIP-279).
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The largest epoch of a log that is not above a requested one, and the end offset of that epoch."""

    epoch: int
    end_offset: int


def truncation_point(leader: EpochEnd, own: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """Return the offset to truncate a diverged log to; `own` is the follower's own end of the leader's epoch.

    The offset may be above the first diverging record: the next Fetch, with an older last epoch, finds the rest.
    """
    if leader.end_offset == UNKNOWN:
        return high_watermark
    if own.end_offset == UNKNOWN:
        return min(leader.end_offset, log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader.end_offset, log_end_offset)


class OutOfRangeTruncation(NamedTuple):
    """The offset to truncate to and to fetch from; with `fully`, delete all records and start the log there."""

    offset: int
    fully: bool


def truncation_after_out_of_range(leader_start: int, leader_end: int, log_end_offset: int) -> OutOfRangeTruncation:
    """Return the truncation after OFFSET_OUT_OF_RANGE: the leader's log ends below the follower's log end offset (after
    an unclean election), or begins above it, or has the offset by now."""
    if leader_end < log_end_offset:
        return OutOfRangeTruncation(leader_end, False)
    if leader_start > log_end_offset:
        return OutOfRangeTruncation(leader_start, True)
    return OutOfRangeTruncation(log_end_offset, False)
