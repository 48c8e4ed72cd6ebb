"""Truncation: remove the records at the end of a log that the leader of the partition does not have."""

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
    # Compaction leaves gaps, also at the end of a segment: the log ends before the gap.
    found = segment.translate_offset(offset)
    if found is None:
        end = segment.next_offset()
    else:
        position, _, base_offset = found
        end = min(base_offset, offset)
        segment.truncate(position, end)
    if end < log.log_start_offset:
        # All records are below the log start offset: begin again, so that the start survives a restart.
        truncate_fully_and_start_at(log, log.log_start_offset)
    else:
        _set_log_end_offset(log, end)


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    segment_deletion.remove_segments(log, list(log.segments))
    log.snapshots.remove_all()
    log.segments.roll_to(offset, log.config)
    log.log_start_offset = offset
    log.leader_epochs.clear()
    _set_log_end_offset(log, offset)


def _set_log_end_offset(log: Log, offset: int) -> None:
    log.forget_last_batch()
    log.log_end_offset = offset
    log.flusher.on_truncated(offset)
    log.cleaner.on_truncated(log.segments.active.base_offset)
    log.leader_epochs.truncate_from_end(offset)
    log.leader_epoch_file.write_if_dirty()
    log.producers.clear()
    log.rebuild_producer_state()
