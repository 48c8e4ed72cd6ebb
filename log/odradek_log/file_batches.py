"""Read batch headers from a log file without the records between them (Kafka's FileRecords).

Positions are those in the file. `odradek_wire.records.batch` reads the headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek_log.log_errors import CorruptLogError
from odradek_log.open_files import OpenFile
from odradek_wire.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    RecordBatchHeader,
    peek_header,
)
from odradek_wire.records.record_errors import CorruptRecordError

# Base offset, length, magic and last offset delta of a batch.
_STEP = struct.Struct(">qi4xb6xi")
_step = _STEP.unpack_from
_FIND_CHUNK = 4096
_SCAN_CHUNK = 1 << 16


def find_batch(file: OpenFile, position: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """Return (position, size, base offset) of the first batch from `position` on whose last offset is at least
    `offset`.

    Returns None if all batches before `end` are below `offset`. Raises CorruptLogError for anything but a batch.
    """
    while position < end:
        chunk = file.read(min(_FIND_CHUNK, end - position), position)
        at = 0
        last = len(chunk) - HEADER_SIZE
        while at <= last:
            base_offset, length, magic, delta = _step(chunk, at)
            if length < MIN_BATCH_LENGTH or magic != MAGIC:
                raise CorruptLogError(f"no record batch at position {position + at}: length {length}, magic {magic}")
            if base_offset + delta >= offset:
                return position + at, length + LOG_OVERHEAD, base_offset
            at += length + LOG_OVERHEAD
        if at == 0:
            raise CorruptLogError(f"no record batch in the last {end - position} bytes, from position {position}")
        position += at
    return None


def batch_at(file: OpenFile, position: int, end: int) -> tuple[int, int, int]:
    """Return (position, size, base offset) of the batch at `position`. Raises CorruptLogError."""
    chunk = file.read(_STEP.size, position)
    if len(chunk) < _STEP.size or position + HEADER_SIZE > end:
        raise CorruptLogError(f"the file ends at {end}, in the batch at position {position}")
    base_offset, length, magic, _ = _step(chunk)
    if length < MIN_BATCH_LENGTH or magic != MAGIC:
        raise CorruptLogError(f"no record batch at position {position}: length {length}, magic {magic}")
    return position, length + LOG_OVERHEAD, base_offset


def batch_headers(file: OpenFile, start: int, end: int) -> Iterator[RecordBatchHeader]:
    """Yield the headers of the batches in [start, end). Raises CorruptLogError."""
    position = start
    size = HEADER_SIZE
    while position < end:
        chunk = file.read(min(size, end - position), position)
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            try:
                header = peek_header(chunk, at)
            except CorruptRecordError as error:
                raise CorruptLogError(f"no record batch at position {position + at}: {error}") from None
            header.position = position + at
            at += header.size_in_bytes
            yield header
        if at == 0:
            raise CorruptLogError(f"no record batch in the last {end - position} bytes, from position {position}")
        # Read many small batches at a time, but only the header of a large one.
        size = _SCAN_CHUNK if at < _SCAN_CHUNK else HEADER_SIZE
        position += at
