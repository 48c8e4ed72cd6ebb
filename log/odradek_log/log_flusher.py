"""Force the records of a log to the disk: the one part of a log that several threads use.

Owns the recovery point, which never covers records that are not on the disk, although the thread of the log appends,
rolls, truncates and deletes during a flush; and its value in the checkpoint, from which recovery begins after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from odradek_log.leader_epoch_checkpoint_file import LeaderEpochCheckpointFile
from odradek_log.log_segments import LogSegments
from odradek_log.producer_snapshots import ProducerSnapshots


class LogFlusher:
    """The flusher of one log; concurrent flushes run one after the other."""

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
        """Guards the recovery point. Never held during disk I/O."""
        self._truncations = 0
        self.recovery_point = recovery_point
        """All records below it are on the disk."""
        self._wall_ms = wall_ms
        self.flushed_ms = wall_ms()
        """The start time of the last flush, or the time at which the log was opened."""

    @property
    def recovery_point_to_checkpoint(self) -> int:
        """The recovery point; less by one while the index files of the segment before it may not be on the disk.

        After a crash, recovery reads the segment that has this offset and all later ones, and trusts the index files of
        earlier segments. A flush forces no index file of the active segment to the disk. (Kafka's does.) So, if that
        segment rolls exactly at the recovery point, the checkpoint must have an offset in it until its index files are
        on the disk."""
        point, segments = self.recovery_point, self._segments
        active = segments.active
        is_in_active = point > active.base_offset and not active.sealed
        return point - 1 if point and (is_in_active or segments.unsynced) else point

    def flush_to(self, end_of: Callable[[], int]) -> None:
        """Force all records below the offset that `end_of` returns to the disk. Any thread. Raises OSError.

        Calls `end_of` after it has read the number of truncations, so that it detects a truncation during the flush.
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
                # Retention has deleted a segment in the meantime: the next flush does the rest.
                return
            with self._one_writer:
                # After a truncation these offsets may have other records.
                if truncations == self._truncations:
                    self.recovery_point = max(self.recovery_point, end)

    def on_truncated(self, end: int) -> None:
        """Lower the recovery point to the new end of the log after a truncation."""
        with self._one_writer:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, end)
