"""A cleaned segment takes the place of those it was made of, so that a crash at any point leaves either (LocalLog's
replaceSegments; what a crash leaves, `log_loader` finishes or undoes).

`.cleaned` becomes `.swap`: from here on the new segment counts. The old files become `.deleted`, `.swap` loses its
suffix. Who is reading an old file has it open and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_log.cleaner.cleaned_segment import CleanedSegment
from odradek_log.file_names import CLEANED, SWAP
from odradek_log.log import Log
from odradek_log.log_segment import LogSegment


def replace_segments(log: Log, old: Sequence[LogSegment], new: CleanedSegment) -> None:
    """On the log's thread, in one step. Raises `OSError`; the log is offline then, and whole after the next start."""
    segment = new.segment
    paths = [segment.path(suffix) for suffix in new.suffixes]
    with log.handling_disk_errors("swap in a cleaned segment"):
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
