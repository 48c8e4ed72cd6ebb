"""Remove records from a batch of magic 2 (MemoryRecords.filterTo), for the log cleaner.

One pass reads only keys and the positions of records; kept records are copied undecoded. The bounds are those of
`record_codec.decode`. Leaves to the caller which records are kept.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, cast

from odradek_wire.records.attributes import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from odradek_wire.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    Buffer,
    RecordBatchHeader,
    pack_header,
    rewrite_crc,
)
from odradek_wire.records.compression import compress
from odradek_wire.records.record_codec import append_varint, read_varint, read_varlong
from odradek_wire.records.record_errors import InvalidRecordError


class PartialRecords(NamedTuple):
    """The keys and positions of the records of a batch, in their order."""

    starts: list[int]
    """The position of each record in the data, then the end of the last one."""
    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keys: list[bytes | None]
    keyless: list[int]
    """The indices of records without a key."""
    tombstones: list[int]
    """The indices of records without a value."""


def read_partial(data: bytes, count: int) -> PartialRecords:
    """Read exactly `count` records that fill `data` exactly. Raises InvalidRecordError for anything else."""
    found = begin_partial()
    continue_partial(found, data, count, count)
    return found


def begin_partial() -> PartialRecords:
    """Return the empty result that `continue_partial` fills."""
    return PartialRecords([0], [], [], [], [], [])


def continue_partial(found: PartialRecords, data: bytes, count: int, records_max: int) -> bool:
    """Read at most `records_max` records after those that `found` has; return whether `found` has all of them.

    Raises as `read_partial` does.
    """
    add_end, add_offset_delta = found.starts.append, found.offset_deltas.append
    add_timestamp_delta, add_key = found.timestamp_deltas.append, found.keys.append
    end = len(data)
    first = len(found.keys)
    last = min(count, first + records_max)
    position = found.starts[-1]
    try:
        for index in range(first, last):
            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            record_end = position + ((number >> 1) ^ -(number & 1))
            if record_end > end or record_end < position:
                raise InvalidRecordError(f"record of {record_end - position} bytes, {end - position} are left")

            number = data[position + 1]  # the byte before it is the record's attributes
            position += 2
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varlong(data, position - 1)
            add_timestamp_delta((number >> 1) ^ -(number & 1))

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            add_offset_delta((number >> 1) ^ -(number & 1))

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if number & 1:
                add_key(None)
                found.keyless.append(index)
            else:
                start = position
                position += number >> 1
                add_key(data[start:position])
            if position >= record_end:
                raise InvalidRecordError(f"key ends at {position} and passes the end of its record, {record_end}")
            if data[position] & 1:  # a negative length
                found.tombstones.append(index)
            position = record_end
            add_end(position)
    except IndexError:
        raise InvalidRecordError("records end before their batch's count is reached") from None
    if last == count and position != end:
        raise InvalidRecordError(f"{end - position} bytes follow the last record of the batch")
    return last == count


def retain(
    header: RecordBatchHeader,
    data: bytes,
    found: PartialRecords,
    kept: Sequence[int],
    *,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Return the batch with only the records `kept`: at least one ascending index. It keeps its first and last offset
    and its sequences (KAFKA-5490). `data` has the decompressed records of the batch, `found` the result of
    `read_partial`.

    `delete_horizon_ms` sets the delete horizon (KIP-534); None keeps that of the batch.
    """
    work = retain_in_slices(header, data, found, kept, len(kept), delete_horizon_ms=delete_horizon_ms)
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return cast(bytearray, finished.value)


def retain_in_slices(
    header: RecordBatchHeader,
    data: bytes,
    found: PartialRecords,
    kept: Sequence[int],
    records_max: int,
    *,
    delete_horizon_ms: int | None = None,
) -> Generator[bool, None, bytearray]:
    """Like `retain`, with at most `records_max` records between two yields. Yields whether the next step compresses."""
    max_timestamp, base_timestamp, attributes = header.max_timestamp, header.base_timestamp, header.attributes
    deltas, latest = found.timestamp_deltas, NO_TIMESTAMP
    parts: list[Buffer] = []
    for first in range(0, len(kept), records_max):
        chunk = kept[first : first + records_max]
        latest = max(latest, base_timestamp + max([deltas[index] for index in chunk]))
        if delete_horizon_ms is None:
            pieces = _runs(data, found.starts, chunk)
        else:
            pieces = _rebased(data, found, chunk, base_timestamp - delete_horizon_ms)
        parts.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        yield False
    if not attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = latest
    if delete_horizon_ms is not None:
        base_timestamp, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_BIT
    if header.is_compressed:
        yield True
        parts = [compress(header.compression, b"".join(parts))]
    return _with_body(header, parts, attributes, base_timestamp, max_timestamp, len(kept))


def _runs(data: bytes, starts: list[int], kept: Sequence[int]) -> list[Buffer]:
    """Return the kept records, neighbours as one slice."""
    view = memoryview(data)
    pieces: list[Buffer] = []
    first = previous = kept[0]
    for index in kept[1:]:
        if index != previous + 1:
            pieces.append(view[starts[first] : starts[previous + 1]])
            first = index
        previous = index
    pieces.append(view[starts[first] : starts[previous + 1]])
    return pieces


def _rebased(data: bytes, found: PartialRecords, kept: Sequence[int], shift: int) -> list[Buffer]:
    """Return the kept records with timestamp deltas from a base that is `shift` earlier."""
    pieces: list[Buffer] = []
    for index in kept:
        # Length, attributes, timestamp delta, and all the rest.
        position, end = found.starts[index], found.starts[index + 1]
        while data[position] > 127:
            position += 1
        attributes_at = position = position + 1
        position += 1
        while data[position] > 127:
            position += 1
        delta = found.timestamp_deltas[index] + shift
        if not -(1 << 63) <= delta < 1 << 63:
            raise InvalidRecordError(f"timestamp delta {delta} does not fit in 64 bits")
        record = bytearray(data[attributes_at : attributes_at + 1])
        append_varint(record, delta)
        record += data[position + 1 : end]
        length = bytearray()
        append_varint(length, len(record))
        pieces += length, record
    return pieces


def empty_batch(header: RecordBatchHeader) -> bytearray:
    """Return the batch without records, which keeps the last sequence of a producer, or the end of a log."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return _with_body(header, [], attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _with_body(
    header: RecordBatchHeader, body: list[Buffer], attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    output = bytearray(HEADER_SIZE + sum(map(len, body)))
    position = HEADER_SIZE
    for piece in body:
        output[position : position + len(piece)] = piece
        position += len(piece)
    changed = RecordBatchHeader(
        (
            header.base_offset,
            len(output) - LOG_OVERHEAD,
            header.partition_leader_epoch,
            header.magic,
            0,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
    )
    pack_header(output, changed)
    rewrite_crc(output, changed)
    return output
