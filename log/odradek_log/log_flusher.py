"""How much of a log is on the disk, and forcing the rest there: the one part of a log that other threads may use.

Owns the recovery point. The loop thread goes on appending, rolling, truncating and deleting meanwhile; the recovery
point never names what was not forced to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from odradek_log.leader_epoch_checkpoint_file import LeaderEpochCheckpointFile
from odradek_log.log_segments import LogSegments
from odradek_log.producer_snapshots import ProducerSnapshots


class LogFlusher:
    """Of one log. Flushes that meet on several threads follow each other."""

    __slots__ = (
        "_epoch_file",
        "_one_flush",
        "_one_writer",
        "_segments",
        "_snapshots",
        "_truncations",
        "_wall_ms",
        "flushed_ms",
        "recovery_point",
    )

    def __init__(
        self,
        segments: LogSegments,
        leader_epoch_file: LeaderEpochCheckpointFile,
        snapshots: ProducerSnapshots,
        recovery_point: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self._segments = segments
        self._epoch_file = leader_epoch_file
        self._snapshots = snapshots
        self._one_flush = Lock()
        self._one_writer = Lock()
        """Of the recovery point. Never held while the disk is waited for."""
        self._truncations = 0
        self.recovery_point = recovery_point
        """Everything below it is known to be on the disk."""
        self._wall_ms = wall_ms
        self.flushed_ms = wall_ms()
        """When the last flush began; before the first, when the log was opened."""

    def flush_to(self, end_of: Callable[[], int]) -> None:
        """Force everything below an offset that the log has reached to the disk. Any thread; `OSError`.

        The offset is asked for after the truncations so far are known: one that comes between is noticed.
        """
        with self._one_flush:
            truncations = self._truncations
            self.flushed_ms = self._wall_ms()
            end = end_of()
            point = self.recovery_point
            try:
                if end > point:
                    for segment in self._segments.from_offset(point):
                        if segment.base_offset < end:
                            segment.flush()
                self._segments.sync_indexes()
                self._epoch_file.sync()
                self._snapshots.sync()
            except FileNotFoundError:
                # Retention took a segment away meanwhile; the next flush does the rest.
                return
            with self._one_writer:
                # After a truncation other records may stand at these offsets.
                if truncations == self._truncations:
                    self.recovery_point = max(self.recovery_point, end)

    def truncated(self, end: int) -> None:
        """The log ends at `end` now, with less than it had."""
        with self._one_writer:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, end)
