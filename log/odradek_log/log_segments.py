"""The segments of a log by ascending base offset; the last one is active (LogSegments).

Owns finding, rolling and removing segments. Renames deleted files to `.deleted` and removes them after a delay, as
Kafka does, so that readers can finish.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_segment import FileSlice, LogSegment
from odradek_log.transaction_index import AbortedTransaction


class LogSegments:
    """The segments of one log, at least one."""

    __slots__ = ("_bases", "_env", "_segments", "active", "directory", "unsynced")

    def __init__(self, env: LogEnvironment, directory: str, segments: list[LogSegment]) -> None:
        self._env = env
        self.directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.unsynced: list[LogSegment] = []
        """Sealed segments whose index files may not be on the disk. Recovery trusts the files of segments below the
        checkpointed recovery point."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> LogSegment:
        return self._segments[at]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment with `offset` and all after it. Any thread, because it copies the list first."""
        row = self._segments.copy()
        return row[max(bisect_right(row, offset, key=_base) - 1, 0) :]

    def containing(self, offset: int) -> LogSegment:
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def after(self, segment: LogSegment) -> LogSegment:
        return self._segments[self._segments.index(segment) + 1]

    def position_in(self, segment: LogSegment, offset: int) -> int:
        """Return the position of the batch with `offset` in the segment; 0 if an earlier segment has the batch, the
        size of the segment if a later one has it."""
        if offset <= segment.base_offset:
            return 0
        if segment is not self.active and offset >= self.after(segment).base_offset:
            return segment.size
        found = segment.translate_offset(offset)
        return segment.size if found is None else found[0]

    def find_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record from `start_offset` on with at least this
        timestamp."""
        for segment in self._segments:
            if segment.largest_timestamp[0] >= timestamp:
                found = segment.find_timestamp(timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def find_largest_timestamp(self) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record with the largest timestamp."""
        segment = max(self._segments, key=lambda segment: segment.largest_timestamp[0])
        timestamp = segment.largest_timestamp[0]
        return segment.find_timestamp(timestamp, segment.base_offset) if timestamp >= 0 else None

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records or their marker in [start, end)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            index = segment.transaction_index
            if not index.is_empty and index.collect(start, end, found):
                break
        return found

    def offset_after_slice(self, file_slice: FileSlice, log_end_offset: int) -> int:
        """Return an upper bound of the offsets in a slice, from the offset index (LocalLog.addAbortedTransactions)."""
        segment = file_slice.segment
        relative = segment.offset_index.first_from(file_slice.position + file_slice.size)
        if relative is not None:
            return segment.base_offset + relative
        return log_end_offset if segment is self.active else self.after(segment).base_offset

    def end_offsets(self, log_end_offset: int) -> list[int]:
        """Return the end offset of each segment, exclusive."""
        return [segment.base_offset for segment in self._segments[1:]] + [log_end_offset]

    def roll_to(self, base_offset: int, config: LogConfig) -> LogSegment:
        """Create a new active segment; seal the one before it."""
        if self._segments:
            old = self.active
            if old.base_offset == base_offset:
                # The log rolls an empty segment, such as when the first batch of a follower is larger than
                # `segment.bytes`: replace it.
                assert old.size == 0
                for path in old.mark_deleted():
                    self._env.disk.remove(path)
                self._segments.pop()
                self._bases.pop()
            else:
                if not old.size:
                    # Compaction left no batch below `base_offset`. Keep an empty file, because its name has the start
                    # offset of the log.
                    old.create_file()
                self.seal(old)
        segment = LogSegment.create(self._env, self.directory, base_offset, config)
        segment.activate(config)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        return segment

    def seal(self, segment: LogSegment) -> None:
        """Complete the index files if necessary; `sync_indexes` forces them to the disk."""
        if not segment.sealed:
            segment.seal()
            if segment.size:
                self.unsynced.append(segment)

    def sync_indexes(self) -> None:
        """Force the index files of sealed segments to the disk. Any thread, one at a time."""
        while self.unsynced:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self.unsynced[0].sync_indexes()
            del self.unsynced[0]

    def make_active(self, segment: LogSegment, config: LogConfig) -> None:
        """Make the last segment active, after those behind it were removed."""
        assert segment is self._segments[-1]
        self.active = segment
        segment.activate(config)

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> list[str]:
        """Replace neighbouring segments by another one and rename their files; return the new names, for
        `remove_later`."""
        at = self._segments.index(old[0])
        assert self._segments[at : at + len(old)] == list(old)
        assert self.active not in old
        paths = [path for segment in old for path in segment.mark_deleted()]
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        return paths

    def remove(self, segments: Sequence[LogSegment]) -> list[str]:
        """Remove segments from the log and rename their files; return the new names, for `remove_later`."""
        paths: list[str] = []
        for segment in segments:
            self._segments.remove(segment)
            self._bases.remove(segment.base_offset)
            paths += segment.mark_deleted()
        return paths

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        disk, reporter = self._env.disk, self._env.reporter

        def remove() -> None:
            for path in paths:
                try:
                    disk.remove(path)
                except FileNotFoundError:
                    continue  # the whole partition was deleted meanwhile
                except OSError as error:
                    reporter.error("failed to remove a deleted file", file=path, error=str(error))

        if paths:
            self._env.later(delay_ms, remove)


def _base(segment: LogSegment) -> int:
    return segment.base_offset
