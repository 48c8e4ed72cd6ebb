"""Delete segments at the beginning of a log, by retention or DeleteRecords.

`retention` decides which segments retention deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_log.log_segment import LogSegment
from odradek_log.retention import SegmentRetention, deletable

if TYPE_CHECKING:
    from odradek_log.log import Log


def delete_old_segments(log: Log, limit: int) -> int:
    """See `Log.delete_old_segments`."""
    if log.cleaner.in_progress:
        return 0
    segments = list(log.segments)
    facts = [
        SegmentRetention(end, segment.size, segment.retention_timestamp)
        for end, segment in zip(log.segments.end_offsets(log.log_end_offset), segments, strict=True)
    ]
    count = deletable(facts, log.config, log.log_start_offset, limit, log.env.wall_ms())
    if count == len(segments):
        log.roll_segment()
    if count:
        remove_segments(log, segments[:count])
        advance_log_start_offset(log, max(log.log_start_offset, log.segments.first.base_offset))
    return count


def advance_log_start_offset(log: Log, offset: int) -> None:
    """Set the log start offset; remove older leader epochs."""
    if offset != log.log_start_offset:
        log.log_start_offset = offset
        log.leader_epochs.truncate_from_start(offset)


def remove_segments(log: Log, segments: list[LogSegment]) -> None:
    """Remove segments from the log: rename their files now, delete them after `file.delete.delay.ms`."""
    paths = log.segments.remove(segments)
    for segment in segments:
        paths += log.snapshots.mark_deleted(segment.base_offset)
    log.segments.remove_later(paths, log.config.file_delete_delay_ms)
