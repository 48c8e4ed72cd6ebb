"""Truncation: a log gives up records at its end, because the partition's leader does not have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_log import deletion

if TYPE_CHECKING:
    from odradek_log.log import Log


def truncate(log: Log, offset: int) -> None:
    """See `Log.truncate_to`."""
    if offset < log.segments.first.base_offset:
        begin_anew(log, offset)
        return
    segment, *later = log.segments.from_offset(offset)
    if later:
        deletion.remove(log, later)
        log.segments.make_active(segment, log.config)
    log.log_start_offset = min(log.log_start_offset, offset)
    found = segment.locate(offset)
    if found is not None:
        position, _, base_offset = found
        # Compaction leaves gaps: the log does not reach what it has nothing of.
        base_offset = min(base_offset, offset)
        segment.truncate(position, base_offset)
        offset = max(base_offset, log.log_start_offset)
        if offset > base_offset:
            # Only deleted records are left, and the segments would say that less was deleted than was.
            begin_anew(log, offset)
            return
    _end_at(log, offset)


def begin_anew(log: Log, offset: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    deletion.remove(log, list(log.segments))
    log.snapshots.remove_all()
    log.segments.begin(offset, log.config)
    log.log_start_offset = offset
    log.leader_epochs.clear()
    _end_at(log, offset)


def _end_at(log: Log, offset: int) -> None:
    log.forget_tail()
    log.log_end_offset = offset
    log.flushing.truncated(offset)
    log.cleaner.truncated(log.segments.active.base_offset)
    log.leader_epochs.truncate_from_end(offset)
    log.epoch_file.write_if_dirty()
    log.producers.clear()
    log.load_producers()
