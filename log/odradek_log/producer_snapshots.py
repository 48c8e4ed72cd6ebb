"""The `.snapshot` files of a partition: list, write and load them.

Files are written without a sync, because a checksum detects a torn one; `sync` runs with the next flush of the log.
"""

from __future__ import annotations

from contextlib import suppress

from odradek_log.file_names import DELETED, SNAPSHOT, segment_name
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError
from odradek_log.producer_state_manager import ProducerStateManager


class ProducerSnapshots:
    """The snapshots by ascending offset; each has the state of the producers before its offset."""

    __slots__ = ("_env", "_unsynced", "directory", "offsets")

    def __init__(self, env: LogEnvironment, directory: str, offsets: list[int]) -> None:
        self._env = env
        self.directory = directory
        self.offsets = offsets
        self._unsynced: list[int] = []

    def path(self, offset: int) -> str:
        return f"{self.directory}/{segment_name(offset, SNAPSHOT)}"

    def take(self, producers: ProducerStateManager, offset: int) -> None:
        """Write a snapshot, unless one for this offset exists. Like Kafka, write none at offset 0."""
        newest = self.offsets[-1] if self.offsets else 0
        if offset > newest:
            self._env.disk.write_file(self.path(offset), producers.encode())
            self.offsets.append(offset)
            self._unsynced.append(offset)

    def sync(self) -> None:
        """Force the written snapshots to the disk. Any thread, one at a time."""
        while self._unsynced:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self._env.disk.sync_file(self.path(self._unsynced[0]))
            del self._unsynced[0]

    def load_newest(self, producers: ProducerStateManager, start_offset: int, end_offset: int) -> int | None:
        """Fill the empty `producers` from the newest snapshot not above `end_offset`; return its offset, None without
        one.

        Remove newer and damaged snapshots, and those not above `start_offset`, because records after them are deleted
        (truncateAndReload)."""
        while self.offsets:
            offset = self.offsets[-1]
            path = self.path(offset)
            if start_offset < offset <= end_offset:
                try:
                    producers.load(self._env.disk.read_file(path), path, self._env.wall_ms())
                    return offset
                except CorruptLogError as error:
                    self._env.reporter.warning("discarding a producer snapshot", file=path, error=str(error))
                    producers.clear()
            self.offsets.pop()
            self._env.disk.remove(path)
        return None

    def keep_only(self, segment_bases: set[int]) -> None:
        """Like Kafka at start, remove the snapshots that are not at the base offset of a segment, except the newest."""
        for offset in self.offsets[:-1]:
            if offset not in segment_bases:
                self.offsets.remove(offset)
                self._env.disk.remove(self.path(offset))

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot of a deleted segment to `.deleted`; return the new name, if it exists."""
        if offset not in self.offsets:
            return []
        self.offsets.remove(offset)
        path = self.path(offset)
        self._env.disk.rename(path, path + DELETED)
        return [path + DELETED]

    def remove_all(self) -> None:
        while self.offsets:
            self._env.disk.remove(self.path(self.offsets.pop()))
