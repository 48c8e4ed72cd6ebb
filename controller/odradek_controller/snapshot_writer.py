"""Writing snapshots of the metadata: when one is worth it, the file, and what of the log may go then.

The loop decides and encodes; waiting for the disk is left to another thread, where there is one. Snapshots only spare
work at the next start: one that cannot be written is reported, and hinders nobody.
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
"""A snapshot is not worth it for fewer records since the last one."""

MAX_LOG_BYTES = 100 << 20
"""`metadata.max.retention.bytes`: a longer log is cut at the next snapshot."""

OnDisk = Callable[[Callable[[], None]], object]
"""Runs work that waits for the disk, perhaps on another thread."""


class SnapshotWriter:
    """Of one metadata log. At most one snapshot is under way."""

    def __init__(self, env: LogEnvironment, on_disk: OnDisk | None, snapshot_records: int, max_log_bytes: int) -> None:
        self._env = env
        self._on_disk = on_disk
        self._snapshot_records = snapshot_records
        self._max_log_bytes = max_log_bytes
        self._next = snapshot_records
        self._under_way = False
        self._written: SnapshotId | None = None
        """Where the log may be cut: on the loop, which is found at the next change."""
        self.records_since = 0
        """How many a start would have to replay after the last snapshot."""

    def applied(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> None:
        """The image is what the log holds now: a moment to write it, if that is worth it, and to cut the log below what
        was written."""
        try:
            if self.records_since >= self._next and not self._under_way and self._is_worth_it(image):
                self._begin(image, log, voters, last_timestamp)
            self._cut(log)
        except (OSError, CorruptLogError, LogOfflineError) as error:
            self._report(error)

    def write_now(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> SnapshotId:
        """A snapshot on the disk when this returns. Raises `OSError`."""
        snapshot, data = self._encode(image, log, voters, last_timestamp)
        self._write(log, snapshot, data)
        self._cut(log)
        return snapshot

    def _is_worth_it(self, image: ClusterImage) -> bool:
        """When replaying the log costs much more than replaying the image would."""
        self._next = self._snapshot_records + 2 * sum(1 for _ in image_records(image))
        return self.records_since >= self._next

    def _begin(self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int) -> None:
        snapshot, data = self._encode(image, log, voters, last_timestamp)

        def write() -> None:
            try:
                self._write(log, snapshot, data)
            except (OSError, LogOfflineError) as error:
                # The log holds everything, only longer than it need be: the next one comes after as many records.
                self._report(error)
            finally:
                self._under_way = False

        self._under_way = True
        if self._on_disk is None:
            write()
        else:
            self._on_disk(write)

    def _encode(
        self, image: ClusterImage, log: Log, voters: VoterRecords, last_timestamp: int
    ) -> tuple[SnapshotId, bytes]:
        if log.size_bytes > self._max_log_bytes:
            # What may go with this snapshot ends a segment with it.
            log.roll()
        self.records_since = 0
        self._next = self._snapshot_records
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
        """The file, whole and on the disk; older ones but the last are deleted. Any thread."""
        disk = self._env.disk
        older = find_snapshots(disk, log.directory)
        log.flush()
        disk.replace_file(f"{log.directory}/{snapshot.file_name}", data)
        for stale in older[:-1]:
            disk.remove(f"{log.directory}/{stale.file_name}")
        self._written = snapshot

    def _cut(self, log: Log) -> None:
        snapshot, self._written = self._written, None
        if snapshot is not None and log.size_bytes > self._max_log_bytes:
            log.advance_log_start_offset(snapshot.end_offset)
            log.delete_old_segments(snapshot.end_offset)

    def _report(self, error: Exception) -> None:
        self._env.reporter.warning("a metadata snapshot could not be written", error=str(error))
