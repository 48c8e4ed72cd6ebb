"""A sealed segment's log file, read once from its beginning to its end, in pieces of whole batches."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_log.disk import READ, Disk
from odradek_log.file_names import LOG
from odradek_log.log_errors import CorruptLogError
from odradek_log.log_segment import LogSegment
from odradek_log.open_files import OpenFile
from odradek_wire.records.batch import HEADER_SIZE, RecordBatchHeader, entry_size_at, iterate


class SegmentChunk:
    """The headers of the whole batches in it are read as they are asked for."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = 0
        """Where the last batch that was asked for ends."""

    def __iter__(self) -> Iterator[RecordBatchHeader]:
        for header in iterate(self.data, allow_partial=True):
            self.end = header.end
            yield header


def read_chunks(disk: Disk, segment: LogSegment, size: int) -> Iterator[SegmentChunk]:
    """Of about `size` bytes, more where a batch is larger. Each is read when it is asked for, behind what was asked for
    of the one before. Raises `OSError`, `CorruptLogError`."""
    if not segment.size:
        return
    file = OpenFile(disk, disk.open(segment.path(LOG), READ), _NO_HOLDER)
    wanted = max(size, HEADER_SIZE)
    position = 0
    while position < segment.size:
        data = memoryview(file.read(min(wanted, segment.size - position), position))
        first = entry_size_at(data)
        if first is not None and first <= len(data):
            chunk = SegmentChunk(data)
            yield chunk
            position += chunk.end
        elif first is None or first > segment.size - position:
            raise CorruptLogError(f"{segment.path(LOG)}: no batch at position {position}")
        else:
            wanted = first  # and so many for the rest of the segment: the next ones may be as large


class _NoHolder:
    """A file that is read from once is held by nobody who would lose it."""

    file: OpenFile | None = None


_NO_HOLDER = _NoHolder()
