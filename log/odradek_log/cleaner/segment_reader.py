"""Read the log file of a sealed segment once, from beginning to end, in chunks of whole batches."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_log.disk import READ, Disk
from odradek_log.file_names import LOG
from odradek_log.log_errors import CorruptLogError
from odradek_log.log_segment import LogSegment
from odradek_log.open_files import OpenFile
from odradek_wire.records.batch import HEADER_SIZE, RecordBatchHeader, entry_size_at, iterate


class SegmentChunk:
    """Some bytes of a segment; iterate over it for the headers of its whole batches."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = 0
        """The end of the last batch that the iteration has returned."""

    def __iter__(self) -> Iterator[RecordBatchHeader]:
        for header in iterate(self.data, allow_partial=True):
            self.end = header.end
            yield header


def read_chunks(disk: Disk, segment: LogSegment, size: int) -> Iterator[SegmentChunk]:
    """Yield chunks of about `size` bytes, more for a larger batch. Each chunk begins after the last batch that the
    caller took from the chunk before. Raises OSError and CorruptLogError."""
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
            wanted = first  # for the rest of the segment, whose batches may be as large


class _NoHolder:
    """The holder of a file that is outside `OpenFiles` and cannot be evicted."""

    file: OpenFile | None = None


_NO_HOLDER = _NoHolder()
