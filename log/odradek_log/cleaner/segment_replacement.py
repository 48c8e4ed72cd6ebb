"""Replace segments of a log by a cleaned one, so that a crash at any point loses nothing (LocalLog.replaceSegments).

Renames `.cleaned` to `.swap`: from here on the new segment is valid. Then renames the old files to `.deleted`, and
removes the suffix `.swap`. `log_loader` completes or undoes what a crash leaves. Readers keep an old file open.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_log.cleaner.cleaned_segment import CleanedSegment
from odradek_log.file_names import CLEANED, SWAP
from odradek_log.log import Log
from odradek_log.log_segment import LogSegment


def replace_segments(log: Log, old: Sequence[LogSegment], new: CleanedSegment) -> None:
    """Replace segments, on the thread of the log. Raises OSError, after which the log is offline and valid at the next
    start."""
    segment = new.segment
    paths = [segment.path(suffix) for suffix in new.suffixes]
    with log.handling_disk_errors("replace segments"):
        for path in paths:
            log.env.disk.rename(path + CLEANED, path + SWAP)
        deleted = log.segments.replace(old, segment)
        for path in paths:
            log.env.disk.rename(path + SWAP, path)
        segment.mark_sealed()
        for gone in old:
            if gone.base_offset != segment.base_offset:
                deleted += log.snapshots.mark_deleted(gone.base_offset)
        log.segments.remove_later(deleted, log.config.file_delete_delay_ms)
