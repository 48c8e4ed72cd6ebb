"""The `.snapshot` files of a partition: which there are, writing one, loading the newest that can be read.

Written without a sync, for what a crash leaves of one is told by its checksum; `sync` follows with the log's own.
"""

from __future__ import annotations

from contextlib import suppress

from odradek_log.file_names import DELETED, SNAPSHOT, segment_name
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError
from odradek_log.producer_state_manager import ProducerStateManager


class ProducerSnapshots:
    """The offsets for which there is a snapshot, ascending: the producers as they were before that offset."""

    __slots__ = ("_env", "_unsynced", "directory", "offsets")

    def __init__(self, env: LogEnvironment, directory: str, offsets: list[int]) -> None:
        self._env = env
        self.directory = directory
        self.offsets = offsets
        self._unsynced: list[int] = []

    def path(self, offset: int) -> str:
        return f"{self.directory}/{segment_name(offset, SNAPSHOT)}"

    def take(self, producers: ProducerStateManager, offset: int) -> None:
        """Write one, at most once for an offset, and none for a log that nothing was ever written to (as Kafka)."""
        newest = self.offsets[-1] if self.offsets else 0
        if offset > newest:
            self._env.disk.write_file(self.path(offset), producers.encode())
            self.offsets.append(offset)
            self._unsynced.append(offset)

    def sync(self) -> None:
        """Force the written ones to the disk. Any thread, one at a time."""
        while self._unsynced:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self._env.disk.sync_file(self.path(self._unsynced[0]))
            del self._unsynced[0]

    def load_newest(self, producers: ProducerStateManager, start_offset: int, end_offset: int) -> int | None:
        """Fill the empty `producers` from the newest snapshot not above `end_offset`; returns its offset, None without
        one. Newer and unreadable ones are removed, and those not above `start_offset`, where the log begins: of what
        follows them something is gone (as Kafka's truncateAndReload)."""
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
        """Remove those that belong to no segment's beginning, the newest excepted (as Kafka at start)."""
        for offset in self.offsets[:-1]:
            if offset not in segment_bases:
                self.offsets.remove(offset)
                self._env.disk.remove(self.path(offset))

    def mark_deleted(self, offset: int) -> list[str]:
        """The segment that begins at `offset` goes, and its snapshot with it; returns the renamed file."""
        if offset not in self.offsets:
            return []
        self.offsets.remove(offset)
        path = self.path(offset)
        self._env.disk.rename(path, path + DELETED)
        return [path + DELETED]

    def remove_all(self) -> None:
        while self.offsets:
            self._env.disk.remove(self.path(self.offsets.pop()))
