"""Decode and encode the records inside a batch of magic 2.

A record is its length, then attributes (one unused byte), timestamp delta, offset delta, key, value and headers.
Numbers are zigzag varints; a negative length is null. Decoding checks the bounds that Kafka's reader checks, raises
InvalidRecordError, and allocates nothing by a count or length before it has the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek_wire.records.attributes import TIMESTAMP_TYPE_BIT
from odradek_wire.records.batch import HEADER_SIZE, Buffer, RecordBatchHeader
from odradek_wire.records.compression import DEFAULT_EXPANSION_LIMIT, decompress
from odradek_wire.records.record import Header, Record
from odradek_wire.records.record_errors import ExpansionLimitError, InvalidRecordError

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)
_NO_HEADERS: tuple[Header, ...] = ()
# Creates a Record without its constructor, which is a Python function.
_new = tuple.__new__


def records_data(buffer: Buffer, header: RecordBatchHeader, limit: int = DEFAULT_EXPANSION_LIMIT) -> bytes:
    """Return the decompressed bytes of the records of a batch. Raises CorruptRecordError."""
    body = memoryview(buffer)[header.position + HEADER_SIZE : header.end]
    if not header.is_compressed:
        if len(body) > limit:
            raise ExpansionLimitError(f"{len(body)} bytes of records exceed the limit of {limit}")
        return bytes(body)
    return decompress(header.compression, body, limit)


def read_records(buffer: Buffer, header: RecordBatchHeader, limit: int = DEFAULT_EXPANSION_LIMIT) -> Iterator[Record]:
    """Return an iterator that decodes the records of a batch; decompress them first, to at most `limit` bytes.

    The caller checks bounds and CRC before. With LOG_APPEND_TIME, every record has the max timestamp of the batch.
    Raises CorruptRecordError.
    """
    return decode(
        records_data(buffer, header, limit),
        header.count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None,
    )


def decode(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[Record]:
    """Yield exactly `count` records that fill `data` exactly. Raises InvalidRecordError for anything else."""
    if count < 0:
        raise InvalidRecordError(f"batch of {count} records, expected at least 0")
    if not _INT64_MIN + (1 << 32) <= base_offset <= _INT64_MAX - (1 << 32):
        raise InvalidRecordError(f"base offset {base_offset} leaves no room for a batch")
    end = len(data)
    position = 0
    highest_delta = _INT64_MAX - base_timestamp
    lowest_delta = _INT64_MIN - base_timestamp
    try:
        for _ in range(count):
            # Reads numbers of one or two bytes inline: almost all time of a reader is spent in this loop.
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
            delta = (number >> 1) ^ -(number & 1)
            if delta > highest_delta or delta < lowest_delta:
                raise InvalidRecordError(f"timestamp delta {delta} does not fit in 64 bits")

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            offset = base_offset + ((number >> 1) ^ -(number & 1))

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if number & 1:
                key = None
            else:
                start = position
                position += number >> 1
                if position > record_end:
                    raise InvalidRecordError(f"key of {number >> 1} bytes passes the end of its record")
                key = data[start:position]

            number = data[position]
            position += 1
            if number > 127:
                if (more := data[position]) < 128:
                    number += (more - 1) << 7
                    position += 1
                else:
                    number, position = read_varint(data, position - 1)
            if number & 1:
                value = None
            else:
                start = position
                position += number >> 1
                if position > record_end:
                    raise InvalidRecordError(f"value of {number >> 1} bytes passes the end of its record")
                value = data[start:position]

            number = data[position]
            position += 1
            if number:
                headers, position = read_headers(data, position - 1, record_end)
            else:
                headers = _NO_HEADERS
            if position != record_end:
                raise InvalidRecordError(f"record ends at byte {position}, its length says {record_end}")
            timestamp = base_timestamp + delta if append_time is None else append_time
            yield _new(Record, (offset, timestamp, key, value, headers))
    except IndexError:
        raise InvalidRecordError("records end before their batch's count is reached") from None
    if position != end:
        raise InvalidRecordError(f"{end - position} bytes follow the last record of the batch")


def read_headers(data: bytes, position: int, record_end: int) -> tuple[tuple[Header, ...], int]:
    """Decode the headers of the record that ends at `record_end`, from their count on; return the position after
    them."""
    number, position = read_varint(data, position)
    count = (number >> 1) ^ -(number & 1)
    if count < 0 or count > record_end - position:
        raise InvalidRecordError(f"record with {count} headers, {record_end - position} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        number, position = read_varint(data, position)
        start = position
        position += (number >> 1) ^ -(number & 1)
        if position < start or position > record_end:
            raise InvalidRecordError(f"header key of {position - start} bytes, {record_end - start} are left")
        name = data[start:position].decode("utf-8", "surrogateescape")
        number, position = read_varint(data, position)
        if number & 1:
            headers.append((name, None))
            continue
        start = position
        position += number >> 1
        if position > record_end:
            raise InvalidRecordError(f"header value of {position - start} bytes, {record_end - start} are left")
        headers.append((name, data[start:position]))
    return tuple(headers), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most five bytes, cut to 32 bits like Kafka; return the position after it."""
    number = data[position]
    position += 1
    if number > 127:
        number &= 127
        shift = 7
        while True:
            byte = data[position]
            position += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise InvalidRecordError("varint of more than five bytes")
        number &= 0xFFFF_FFFF
    return number, position


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most ten bytes, cut to 64 bits; return the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise InvalidRecordError("varint of more than ten bytes")


def encode(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Return the bytes of the records in an uncompressed batch with this base offset and base timestamp."""
    output = bytearray()
    for record in records:
        append_record(
            output,
            record.offset - base_offset,
            record.timestamp - base_timestamp,
            record.key,
            record.value,
            record.headers,
        )
    return bytes(output)


def append_record(
    output: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] = (),
) -> None:
    """Encode one record to the end of `output`."""
    body = bytearray(b"\0")
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_nullable(body, key)
    _append_nullable(body, value)
    if headers:
        headers = tuple(headers)
        append_varint(body, len(headers))
        for name, content in headers:
            _append_nullable(body, name.encode("utf-8", "surrogateescape"))
            _append_nullable(body, content)
    else:
        body.append(0)
    append_varint(output, len(body))
    output += body


def append_varint(output: bytearray, number: int) -> None:
    """Encode a zigzag varint to the end of `output`; 32 and 64 bits have the same bytes."""
    number = number << 1 if number >= 0 else ~number << 1 | 1
    while number > 127:
        output.append(number & 127 | 128)
        number >>= 7
    output.append(number)


def _append_nullable(output: bytearray, content: bytes | None) -> None:
    if content is None:
        output.append(1)  # -1
    else:
        append_varint(output, len(content))
        output += content
