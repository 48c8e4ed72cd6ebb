"""Truncation: a log gives up records at its end, because the partition's leader does not have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_log import segment_deletion

if TYPE_CHECKING:
    from odradek_log.log import Log


def truncate(log: Log, offset: int) -> None:
    """See `Log.truncate_to`."""
    if offset < log.segments.first.base_offset:
        truncate_fully_and_start_at(log, offset)
        return
    segment, *later = log.segments.from_offset(offset)
    if later:
        segment_deletion.remove_segments(log, later)
        log.segments.make_active(segment, log.config)
    log.log_start_offset = min(log.log_start_offset, offset)
    # Compaction leaves gaps, also at a segment's end: the log does not reach what it has nothing of.
    found = segment.translate_offset(offset)
    if found is None:
        end = segment.next_offset()
    else:
        position, _, base_offset = found
        end = min(base_offset, offset)
        segment.truncate(position, end)
    if end < log.log_start_offset:
        # Only deleted records are left, and the segments would say that less was deleted than was.
        truncate_fully_and_start_at(log, log.log_start_offset)
    else:
        _set_log_end_offset(log, end)


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    segment_deletion.remove_segments(log, list(log.segments))
    log.snapshots.remove_all()
    log.segments.begin(offset, log.config)
    log.log_start_offset = offset
    log.leader_epochs.clear()
    _set_log_end_offset(log, offset)


def _set_log_end_offset(log: Log, offset: int) -> None:
    log.forget_last_batch()
    log.log_end_offset = offset
    log.flusher.truncated(offset)
    log.cleaner.truncated(log.segments.active.base_offset)
    log.leader_epochs.truncate_from_end(offset)
    log.leader_epoch_file.write_if_dirty()
    log.producers.clear()
    log.rebuild_producer_state()
