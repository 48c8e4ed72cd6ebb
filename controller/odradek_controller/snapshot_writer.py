"""Snapshots of the metadata: when to write one, its file, and the removal of older segments of the log.

The event loop decides and encodes; `start_disk_work` may write the file on another thread. A snapshot only makes the
next start faster: a failure to write one is logged, and the controller continues.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_log.log import Log
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError, LogOfflineError

from .image import ClusterImage
from .image_records import image_records
from .snapshots import SnapshotId, VoterRecords, encode_snapshot, find_snapshots

SNAPSHOT_RECORDS = 5_000
"""The minimum number of records between two snapshots."""

MAX_LOG_BYTES = 100 << 20
"""As Kafka's default of `metadata.max.retention.bytes`: from a larger log, the next snapshot removes the segments below
its end offset."""

StartDiskWork = Callable[[Callable[[], None]], object]
"""Runs work that waits for the disk, possibly on another thread."""


class SnapshotWriter:
    """Writes the snapshots of one metadata log, one at a time."""

    def __init__(
        self, env: LogEnvironment, start_disk_work: StartDiskWork | None, snapshot_records: int, max_log_bytes: int
    ) -> None:
        self._env = env
        self._start_disk_work = start_disk_work
        self._snapshot_records = snapshot_records
        self._max_log_bytes = max_log_bytes
        self._threshold = snapshot_records
        self._writing = False
        self._written: SnapshotId | None = None
        """A snapshot that was written, perhaps on another thread. `_delete_segments_below_snapshot` then removes the
        segments below it."""
        self.records_since = 0
        """The number of records after the last snapshot."""

    def applied(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> None:
        """Write a snapshot of the image if that is due, and remove the segments below the last one."""
        try:
            if self.records_since >= self._threshold and not self._writing and self._reaches_threshold(image):
                self._begin(image, log, voters, last_timestamp)
        except (OSError, CorruptLogError, LogOfflineError) as error:
            self._report(error)
        try:
            self._delete_segments_below_snapshot(log)
        except (OSError, CorruptLogError, LogOfflineError) as error:
            self._env.reporter.warning("old metadata segments could not be removed", error=str(error))

    def write_now(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> SnapshotId:
        """Write a snapshot to the disk and return it. Raises `OSError`."""
        snapshot, data = self._encode(image, log, voters, last_timestamp)
        self._write(log, snapshot, data)
        self._delete_segments_below_snapshot(log)
        return snapshot

    def _reaches_threshold(self, image: ClusterImage) -> bool:
        """Return whether replaying the log takes much longer than replaying the image; set the next threshold."""
        self._threshold = self._snapshot_records + 2 * sum(1 for _ in image_records(image))
        return self.records_since >= self._threshold

    def _begin(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> None:
        snapshot, data = self._encode(image, log, voters, last_timestamp)

        def write() -> None:
            try:
                self._write(log, snapshot, data)
            except (OSError, LogOfflineError) as error:
                # No record is lost, because the log has them all. The next snapshot is due after as many records.
                self._report(error)
            finally:
                self._writing = False

        self._writing = True
        if self._start_disk_work is None:
            write()
        else:
            self._start_disk_work(write)

    def _encode(
        self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int
    ) -> tuple[SnapshotId, bytes]:
        if log.size_bytes > self._max_log_bytes:
            # A new segment begins at the snapshot, so that all older ones can be removed.
            log.roll()
        self.records_since = 0
        self._threshold = self._snapshot_records
        data = encode_snapshot(
            image_records(image),
            image.levels,
            epoch=image.epoch,
            now_ms=self._env.wall_ms(),
            last_timestamp=last_timestamp,
            voters=voters,
        )
        return SnapshotId(image.offset + 1, image.epoch), data

    def _write(self, log: Log, snapshot: SnapshotId, data: bytes) -> None:
        """Write the file, flush it, and delete all older snapshots except the last. Called on any thread."""
        disk = self._env.disk
        older = find_snapshots(disk, log.directory)
        log.flush()
        disk.replace_file(f"{log.directory}/{snapshot.file_name}", data)
        for stale in older[:-1]:
            disk.remove(f"{log.directory}/{stale.file_name}")
        self._written = snapshot

    def _delete_segments_below_snapshot(self, log: Log) -> None:
        snapshot, self._written = self._written, None
        if snapshot is not None and log.size_bytes > self._max_log_bytes:
            log.advance_log_start_offset(snapshot.end_offset)
            log.delete_old_segments(snapshot.end_offset)

    def _report(self, error: Exception) -> None:
        self._env.reporter.warning("metadata snapshot could not be written", error=str(error))
