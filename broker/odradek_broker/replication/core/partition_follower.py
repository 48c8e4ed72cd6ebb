"""One partition, seen from a follower: where its log and the leader's part, and how it gets back onto the leader's way.

Pure functions over (epoch, end offset) pairs as OffsetForLeaderEpoch and the diverging epoch of a Fetch tell them; -1
stands for unknown. A follower never truncates to its high watermark while the leader can tell more: that loses
acknowledged records (KIP-101, KIP-279).
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The newest epoch that is not above the one asked about, and where it ends in that log."""

    epoch: int
    end_offset: int


def truncation_point(leader: EpochEnd, own: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """Where to cut the log when the leader's epochs say that it has gone another way; `own` is the follower's own
    answer about the leader's epoch.

    It may be above the true point of divergence: the next fetch, with an older last epoch, finds the rest.
    """
    if leader.end_offset == UNKNOWN:
        return high_watermark
    if own.end_offset == UNKNOWN:
        return min(leader.end_offset, log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader.end_offset, log_end_offset)


class Restart(NamedTuple):
    """Fetch on from here; `empty`: nothing of the log is left, it begins here."""

    offset: int
    empty: bool


def after_out_of_range(leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    """The leader does not have what was asked for: it ends before (an unclean election), or begins after our end."""
    if leader_end < log_end_offset:
        return Restart(leader_end, False)
    if leader_start > log_end_offset:
        return Restart(leader_start, True)
    return Restart(log_end_offset, False)
