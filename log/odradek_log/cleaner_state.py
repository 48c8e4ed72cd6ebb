"""The state of a log for the log cleaner: its first dirty offset, and whether a pass is in progress or interrupted.

Separate from `cleaner`, because every log has this state and few are ever compacted.
"""

from __future__ import annotations


class CleanerState:
    """The state of one log. Only the thread of the event loop uses it."""

    __slots__ = ("checkpoint", "in_progress", "interruptions", "uncleanable_error")

    def __init__(self) -> None:
        self.checkpoint: int | None = None
        """The first dirty offset (`cleaner-offset-checkpoint`); None if the log was never cleaned."""
        self.in_progress = False
        """Whether a pass over this log is in progress; retention waits for its end, as in Kafka."""
        self.interruptions = 0
        """The number of truncations; a change ends the pass in progress."""
        self.uncleanable_error: Exception | None = None
        """The error, not of the disk, because of which the log is not cleaned until the next start."""

    def on_truncated(self, active_base_offset: int) -> None:
        """Make everything from the active segment on dirty, after a truncation
        (LogManager.maybeTruncateCleanerCheckpointToActiveSegmentBaseOffset)."""
        self.interruptions += 1
        if self.checkpoint is not None:
            self.checkpoint = min(self.checkpoint, active_base_offset)
