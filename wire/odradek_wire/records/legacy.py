"""Message sets of magic 0 and 1, the formats before Kafka 0.11: read, check, write.

    offset int64, size int32, then size bytes: crc uint32 (CRC-32 of the rest), magic int8, attributes int8,
    timestamp int64 (magic 1 only), key length int32 and key, value length int32 and value (-1: null)

A compressed set is one *wrapper* message, whose value is the compressed set of its inner messages and whose offset is
that of the last of them. Inner offsets are absolute in magic 0, relative to the first in magic 1 (KIP-31). The
timestamp of a wrapper of magic 1 with LOG_APPEND_TIME replaces those of its inner messages (KIP-32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek_wire.records.attributes import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    Compression,
    TimestampType,
)
from odradek_wire.records.batch import LOG_OVERHEAD, Buffer, entry_size_at
from odradek_wire.records.compression import DEFAULT_EXPANSION_LIMIT, compress, decompress
from odradek_wire.records.crc import crc32
from odradek_wire.records.record import Record
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError, UnsupportedRecordsError

_ENTRY = struct.Struct(">qiIbb")
_CRC_START = LOG_OVERHEAD + 4
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_INT64_MAX = (1 << 63) - 1


class LegacyMessage(NamedTuple):
    """One message of a set: a record, or the wrapper of compressed records."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    position: int
    size_in_bytes: int

    @property
    def compression(self) -> Compression:
        code = self.attributes & COMPRESSION_MASK
        if code >= Compression.ZSTD:
            raise InvalidRecordError(f"compression type {code} in a message of magic {self.magic}: 0 to 3 expected")
        return COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME


def read_message(buffer: Buffer, position: int = 0) -> LegacyMessage:
    """Read the message at `position`; check bounds and CRC. Raises CorruptRecordError."""
    view = memoryview(buffer)
    size = entry_size_at(view, position)
    if size is None or size > len(view) - position:
        raise CorruptRecordError(f"message at position {position} is cut off after {len(view) - position} bytes")
    offset, _, crc, magic, attributes = _ENTRY.unpack_from(view, position)
    end = position + size
    if magic not in (0, 1):
        raise CorruptRecordError(f"magic {magic} in a message set, expected 0 or 1")
    if crc32(view[position + _CRC_START : end]) != crc:
        raise CorruptRecordError(f"message at offset {offset} has a wrong CRC (stored {crc:#010x})")
    at = position + _ENTRY.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if end - at < 8:
            raise CorruptRecordError(f"message at offset {offset} ends inside its timestamp")
        timestamp = _INT64.unpack_from(view, at)[0]
        at += 8
    key, at = _nullable(view, at, end)
    value, at = _nullable(view, at, end)
    if at != end:
        raise CorruptRecordError(f"message at offset {offset} has {end - at} bytes after its value")
    return LegacyMessage(offset, magic, attributes, timestamp, key, value, position, size)


def _nullable(view: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    if end - position < 4:
        raise CorruptRecordError(f"message ends inside a length, at position {position}")
    length: int = _INT32.unpack_from(view, position)[0]
    position += 4
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptRecordError(f"key or value of {length} bytes, {end - position} are left")
    return view[position : position + length], position + length


def iterate(buffer: Buffer, start: int = 0, *, allow_partial: bool = False) -> Iterator[LegacyMessage]:
    """Yield the messages of a set, wrappers undecompressed. With `allow_partial`, a last one that is cut off ends the
    iteration, as in a Fetch response; otherwise it raises CorruptRecordError."""
    view = memoryview(buffer)
    position = start
    while position < len(view):
        if allow_partial:
            size = entry_size_at(view, position)
            if size is None or size > len(view) - position:
                return
        message = read_message(view, position)
        yield message
        position += message.size_in_bytes


def read_records(message: LegacyMessage, limit: int = DEFAULT_EXPANSION_LIMIT) -> list[Record]:
    """Return the record of a message, or the records of a wrapper, with absolute offsets. Raises CorruptRecordError."""
    codec = message.compression
    if codec is Compression.NONE:
        return [_record(message, message.offset, message.timestamp)]
    if message.value is None:
        raise InvalidRecordError(f"compressed message at offset {message.offset} has no value")
    inner = list(iterate(decompress(codec, message.value, limit, magic=message.magic)))
    if not inner:
        raise InvalidRecordError(f"compressed message at offset {message.offset} has no inner messages")
    for nested in inner:
        if nested.magic != message.magic:
            raise InvalidRecordError(f"inner message of magic {nested.magic} in a wrapper of magic {message.magic}")
        if nested.attributes & COMPRESSION_MASK:
            raise InvalidRecordError(f"wrapper at offset {message.offset} has a compressed inner message")
    if message.magic == 0:
        return [_record(nested, nested.offset, NO_TIMESTAMP) for nested in inner]
    # Some releases of librdkafka send a wrapper with offset 0: then the relative offsets are the absolute ones.
    base = message.offset - inner[-1].offset if message.offset else 0
    if not all(0 <= base + nested.offset <= _INT64_MAX for nested in inner):
        raise InvalidRecordError(f"inner offsets are out of range for the wrapper's offset {message.offset}")
    if message.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [_record(nested, base + nested.offset, message.timestamp) for nested in inner]
    return [_record(nested, base + nested.offset, nested.timestamp) for nested in inner]


def _record(message: LegacyMessage, offset: int, timestamp: int) -> Record:
    return Record(
        offset,
        timestamp,
        None if message.key is None else bytes(message.key),
        None if message.value is None else bytes(message.value),
    )


def read_message_set(
    buffer: Buffer, limit: int = DEFAULT_EXPANSION_LIMIT, *, allow_partial: bool = False
) -> Iterator[Record]:
    """Yield all records of a set; `limit` applies to each wrapper. Raises CorruptRecordError."""
    for message in iterate(buffer, allow_partial=allow_partial):
        yield from read_records(message, limit)


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
) -> bytearray:
    """Build a message set of records at their own offsets, without headers; with a codec, all of them in one wrapper.

    With LOG_APPEND_TIME, every message has the timestamp `log_append_time`. Raises UnsupportedRecordsError for zstd.
    """
    assert magic in (0, 1)
    if compression is Compression.ZSTD:
        raise UnsupportedRecordsError(f"zstd needs magic 2, got {magic}")
    records = list(records)
    append_time = log_append_time if magic == 1 and timestamp_type is TimestampType.LOG_APPEND_TIME else None
    attributes = 0 if append_time is None else TIMESTAMP_TYPE_BIT
    base = records[0].offset if magic == 1 and compression and records else 0
    output = bytearray()
    for record in records:
        timestamp = record.timestamp if append_time is None else append_time
        append_message(output, record.offset - base, magic, attributes, timestamp, record.key, record.value)
    if not compression or not records:
        return output
    wrapped = compress(compression, output, compression_level, magic=magic)
    timestamp = max(record.timestamp for record in records) if append_time is None else append_time
    wrapper = bytearray()
    append_message(wrapper, records[-1].offset, magic, attributes | compression, timestamp, None, wrapped)
    return wrapper


def append_message(
    output: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: bytes | memoryview | None,
    value: bytes | memoryview | None,
) -> None:
    """Append one message with its CRC."""
    start = len(output)
    output += _ENTRY.pack(offset, 0, 0, magic, attributes)
    if magic == 1:
        output += _INT64.pack(timestamp)
    for content in (key, value):
        output += _INT32.pack(-1 if content is None else len(content))
        if content is not None:
            output += content
    _INT32.pack_into(output, start + 8, len(output) - start - LOG_OVERHEAD)
    _UINT32.pack_into(output, start + LOG_OVERHEAD, crc32(output[start + _CRC_START :]))
