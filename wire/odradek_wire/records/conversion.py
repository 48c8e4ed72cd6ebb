"""Records in another format or codec.

`down_convert` turns batches into a message set for an old consumer, `recompress` changes the codec of a batch for a
topic's `compression.type`. Leaves to `log_validator` the checks of records from producers, and the message sets that
old producers send. Raises `CorruptRecordError` for malformed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_wire.records import batch, legacy
from odradek_wire.records.attributes import COMPRESSION_MASK, Compression, TimestampType
from odradek_wire.records.batch import HEADER_SIZE, LOG_OVERHEAD, Buffer, RecordBatchHeader
from odradek_wire.records.compression import DEFAULT_EXPANSION_LIMIT, compress
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records, records_data
from odradek_wire.records.record_errors import CorruptRecordError, UnsupportedRecordsError


def read_any(buffer: Buffer, limit: int = DEFAULT_EXPANSION_LIMIT, *, allow_partial: bool = False) -> Iterator[Record]:
    """Yield all records of a buffer whose entries may have any magic, control records too. Checks the CRC of old
    messages, but not of batches. Raises CorruptRecordError."""
    position = 0
    while position < len(buffer):
        size = _whole_entry(buffer, position, allow_partial)
        if size is None:
            return
        if batch.magic_at(buffer, position) == batch.MAGIC:
            yield from read_records(buffer, batch.read_header(buffer, position), limit)
        else:
            yield from legacy.read_records(legacy.read_message(buffer, position), limit)
        position += size


def _whole_entry(buffer: Buffer, position: int, allow_partial: bool) -> int | None:
    size = batch.entry_size_at(buffer, position)
    if size is not None and size <= len(buffer) - position:
        return size
    if allow_partial:
        return None
    raise CorruptRecordError(f"entry at position {position} is cut off after {len(buffer) - position} bytes")


def down_convert(
    buffer: Buffer, magic: int, *, first_offset: int = 0, limit: int = DEFAULT_EXPANSION_LIMIT
) -> bytearray:
    """Convert records for a consumer that reads at most `magic` (0 or 1) from `first_offset` on (Kafka 3.9's
    RecordsUtil).

    Keeps offsets and the codec, copies entries of that magic or a lower one, and drops headers, control batches and a
    last entry that is cut off. Drops uncompressed records before `first_offset`, because old consumers do not skip
    them. Raises UnsupportedRecordsError for zstd (Kafka: UNSUPPORTED_COMPRESSION_TYPE). Returns no bytes if no record
    is left.
    """
    assert magic in (0, 1)
    output = bytearray()
    position = 0
    while position < len(buffer):
        size = _whole_entry(buffer, position, allow_partial=True)
        if size is None:
            break
        found = batch.magic_at(buffer, position)
        if found <= magic:
            output += memoryview(buffer)[position : position + size]
        elif found == batch.MAGIC:
            output += _down_convert_batch(buffer, batch.read_header(buffer, position), magic, first_offset, limit)
        else:
            message = legacy.read_message(buffer, position)
            output += _down_convert_records(
                legacy.read_records(message, limit),
                magic,
                message.compression,
                message.timestamp_type,
                message.timestamp,
                first_offset,
            )
        position += size
    return output


def _down_convert_batch(
    buffer: Buffer, header: RecordBatchHeader, magic: int, first_offset: int, limit: int
) -> bytearray:
    if header.is_control:
        return bytearray()
    if header.compression is Compression.ZSTD:
        raise UnsupportedRecordsError(
            f"batch at offset {header.base_offset} is compressed with zstd, which needs magic 2"
        )
    records = list(read_records(buffer, header, limit))
    return _down_convert_records(
        records, magic, header.compression, header.timestamp_type, header.max_timestamp, first_offset
    )


def _down_convert_records(
    records: list[Record],
    magic: int,
    compression: Compression,
    timestamp_type: TimestampType,
    append_time: int,
    first_offset: int,
) -> bytearray:
    if not compression:
        records = [record for record in records if record.offset >= first_offset]
    return legacy.build_message_set(
        records,
        magic=magic,
        compression=compression,
        timestamp_type=timestamp_type,
        log_append_time=append_time,
    )


def recompress(
    buffer: Buffer,
    header: RecordBatchHeader,
    compression: Compression,
    level: int | None = None,
    limit: int = DEFAULT_EXPANSION_LIMIT,
) -> bytearray:
    """Return the batch in another codec: only codec, length and CRC of the header change, the records do not."""
    body = compress(compression, records_data(buffer, header, limit), level)
    output = bytearray(HEADER_SIZE)
    output += body
    fields = list(header.fields())
    fields[1] = len(output) - LOG_OVERHEAD
    fields[5] = header.attributes & ~COMPRESSION_MASK | compression
    batch.pack_header(output, RecordBatchHeader(tuple(fields)))  # type: ignore[arg-type]  # thirteen fields
    batch.rewrite_crc(output, batch.read_header(output))
    return output
