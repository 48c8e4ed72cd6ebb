"""What a log knows of its own compaction: how far it went, and whether something came between.

Owns the facts that the parts of a log and the cleaner tell each other. Apart from the cleaner itself, because every
log has it and few are ever compacted.
"""

from __future__ import annotations


class CleanerState:
    """Of one log. The loop's thread only."""

    __slots__ = ("checkpoint", "in_progress", "interruptions", "uncleanable_error")

    def __init__(self) -> None:
        self.checkpoint: int | None = None
        """Where the dirty part begins (`cleaner-offset-checkpoint`); None if nothing was ever cleaned."""
        self.in_progress = False
        """Whether the cleaner is at this log; retention waits for its end, as in Kafka."""
        self.interruptions = 0
        """Counts what a cleaning must not go on after."""
        self.uncleanable_error: Exception | None = None
        """Trouble other than the disk's: the log is left as it is until the next start."""

    def truncated(self, active_base_offset: int) -> None:
        """The log ends earlier now: what is appended from its active segment on is dirty
        (LogManager.maybeTruncateCleanerCheckpointToActiveSegmentBaseOffset)."""
        self.interruptions += 1
        if self.checkpoint is not None:
            self.checkpoint = min(self.checkpoint, active_base_offset)
