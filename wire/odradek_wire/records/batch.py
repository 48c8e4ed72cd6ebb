"""The header of a record batch of magic 2: read, check and patch it, and check the CRC.

Owns everything that needs no look at the records: find the batches of a buffer, check them, set their offsets. Leaves
records to `record_codec`, building to `builder`, messages of magic 0 and 1 to `legacy`, and what a broker rejects to
`log_validator`. Positions are indices into the buffer that the caller passed; ends are exclusive.

    base_offset 0:8, batch_length 8:12, partition_leader_epoch 12:16, magic 16, crc 17:21 (of 21:end), attributes 21:23,
    last_offset_delta 23:27, base_timestamp 27:35, max_timestamp 35:43, producer_id 43:51, producer_epoch 51:53,
    base_sequence 53:57, count 57:61, records 61:end

The CRC does not cover base offset and leader epoch, so that the leader can set them without computing it again
(KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek_wire.records.attributes import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    KNOWN_BITS,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Compression,
    TimestampType,
)
from odradek_wire.records.crc import crc32c
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

MAGIC = 2
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""The size of offset and length, with which each entry of a log begins whatever its magic is."""
MAGIC_POSITION = 16
"""The position of the magic, in a batch as in a message of magic 0 or 1."""
CRC_START = 21
"""The CRC covers the bytes from here to the end of the batch."""
ATTRIBUTES_POSITION = 21
ATTRIBUTES_LOW_BYTE = 22
"""The position of the second byte of the attributes, which has all the bits that `attributes` names."""
MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
"""The least value of the field batch_length."""
_MAX_SEQUENCE = 0x7FFF_FFFF

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack = _HEADER.unpack_from
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_pack_offset_length_epoch = _OFFSET_LENGTH_EPOCH.pack_into
_MAX_TIMESTAMP_POSITION = 35
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")


class RecordBatchHeader:
    """The header of one batch, copied from a buffer: later patches of the buffer do not change it.

    `position` is the position of the batch in that buffer.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "count",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    position: int

    def __init__(
        self,
        fields: tuple[int, int, int, int, int, int, int, int, int, int, int, int, int],
        position: int = 0,
    ) -> None:
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = fields
        self.position = position

    def fields(self) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]:
        """Return the thirteen fields in the order of the bytes."""
        return (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """The position of the next batch in the buffer."""
        return self.position + self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def compression(self) -> Compression:
        """The codec. Raises InvalidRecordError for an unknown number."""
        code = self.attributes & COMPRESSION_MASK
        if code >= len(COMPRESSIONS):
            raise InvalidRecordError(f"unknown compression type {code} in batch at offset {self.base_offset}")
        return COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may remove the tombstones of the batch; stored in place of the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordBatchHeader):
            return NotImplemented
        return self.fields() == other.fields() and self.position == other.position

    __hash__ = None  # type: ignore[assignment]  # mutable fields, compared by value

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={getattr(self, name)}" for name in self.__annotations__)
        return f"RecordBatchHeader({named})"


def magic_at(buffer: Buffer, position: int = 0) -> int:
    """Return the magic of the entry at `position`, of any format. Raises CorruptRecordError."""
    try:
        magic = buffer[position + MAGIC_POSITION]
    except IndexError:
        raise CorruptRecordError(
            f"an entry of {len(buffer) - position} bytes ends before its magic at {MAGIC_POSITION}"
        ) from None
    return magic - 256 if magic > 127 else magic


def entry_size_at(buffer: Buffer, position: int = 0) -> int | None:
    """Return the whole size of the entry at `position`, of any magic, even if the buffer ends before it; None if the
    buffer ends before its length. Raises CorruptRecordError for a size that no entry can have."""
    if len(buffer) - position < LOG_OVERHEAD:
        return None
    size: int = _INT32.unpack_from(buffer, position + 8)[0] + LOG_OVERHEAD
    # 14 is the least length of a message of magic 0: crc, magic, attributes, key and value lengths.
    if size < 14 + LOG_OVERHEAD:
        raise CorruptRecordError(f"entry of {size - LOG_OVERHEAD} bytes at position {position}: at least 14 expected")
    return size


def peek_header(buffer: Buffer, position: int = 0) -> RecordBatchHeader:
    """Read the header of the batch at `position`; the buffer may end before its records.

    Raises CorruptRecordError if the buffer has fewer than 61 bytes, the magic is not 2 or the length is too small.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptRecordError(f"{len(buffer) - position} bytes left, a batch header has {HEADER_SIZE}")
    header = RecordBatchHeader(_unpack(buffer, position), position)
    if header.magic != MAGIC:
        raise CorruptRecordError(f"magic {header.magic} at position {position}, expected {MAGIC}")
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(f"batch length {header.batch_length}, expected at least {MIN_BATCH_LENGTH}")
    return header


def read_header(buffer: Buffer, position: int = 0) -> RecordBatchHeader:
    """Read the header of the batch at `position`. Raises CorruptRecordError unless the buffer has the whole batch."""
    # Does not call peek_header: every produced batch takes this path.
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptRecordError(f"{len(buffer) - position} bytes left, a batch header has {HEADER_SIZE}")
    header = RecordBatchHeader(_unpack(buffer, position), position)
    if header.magic != MAGIC:
        raise CorruptRecordError(f"magic {header.magic} at position {position}, expected {MAGIC}")
    length = header.batch_length
    if length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(f"batch length {length}, expected at least {MIN_BATCH_LENGTH}")
    if length > len(buffer) - position - LOG_OVERHEAD:
        raise CorruptRecordError(
            f"batch length {length}, but only {len(buffer) - position - LOG_OVERHEAD} bytes follow"
        )
    return header


def iterate(buffer: Buffer, start: int = 0, *, allow_partial: bool = False) -> Iterator[RecordBatchHeader]:
    """Yield the headers of the batches of a buffer; check only their bounds.

    With `allow_partial`, a last batch that the buffer cuts off ends the iteration, as in a Fetch response; otherwise it
    raises CorruptRecordError. Magic 0 and 1 raise it too: call `magic_at` first if the buffer may have them.
    """
    position = start
    end = len(buffer)
    while position < end:
        if allow_partial:
            size = entry_size_at(buffer, position)
            if size is None or size > end - position:
                return
        header = read_header(buffer, position)
        yield header
        position += header.batch_length + LOG_OVERHEAD


def is_crc_valid(buffer: Buffer, header: RecordBatchHeader) -> bool:
    """Return whether the bytes of the batch have the CRC-32C that its header has."""
    position = header.position
    end = position + header.batch_length + LOG_OVERHEAD
    return crc32c(buffer[position + CRC_START : end]) == header.crc


def check_crc(buffer: Buffer, header: RecordBatchHeader) -> None:
    """Raise CorruptRecordError unless the CRC is right."""
    if not is_crc_valid(buffer, header):
        raise CorruptRecordError(f"batch at offset {header.base_offset} has a wrong CRC (stored {header.crc:#010x})")


def check_header(header: RecordBatchHeader) -> None:
    """Raise InvalidRecordError if the header contradicts itself. Only for batches of producers: a compacted batch of a
    log has fewer records than offsets.
    """
    if header.attributes & COMPRESSION_MASK >= len(COMPRESSIONS):
        raise InvalidRecordError(f"unknown compression type {header.attributes & COMPRESSION_MASK}")
    if header.count <= 0:
        raise InvalidRecordError(f"batch of {header.count} records, expected at least 1")
    if header.count != header.last_offset_delta + 1:
        raise InvalidRecordError(f"batch of {header.count} records has {header.last_offset_delta + 1} offsets")


def validate(buffer: Buffer, position: int = 0) -> RecordBatchHeader:
    """Read the header of the batch at `position` and check bounds, magic, CRC and the header itself."""
    header = read_header(buffer, position)
    check_crc(buffer, header)
    check_header(header)
    return header


def set_offset_and_leader_epoch(
    buffer: WritableBuffer, header: RecordBatchHeader, base_offset: int, partition_leader_epoch: int
) -> None:
    """Set base offset and leader epoch, which the CRC does not cover, by one write of 16 bytes."""
    _pack_offset_length_epoch(buffer, header.position, base_offset, header.batch_length, partition_leader_epoch)


def set_base_offset(buffer: WritableBuffer, position: int, base_offset: int) -> None:
    """Set the base offset of the batch (or old message) at `position`; the CRC stays right."""
    _INT64.pack_into(buffer, position, base_offset)


def set_max_timestamp(
    buffer: WritableBuffer, header: RecordBatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set max timestamp and timestamp type and compute the CRC again, unless both have these values already.

    With LOG_APPEND_TIME, the max timestamp is the timestamp of every record: readers ignore the deltas of the records.
    """
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        return
    # Kafka drops unknown bits too when it writes the attributes.
    attributes = header.attributes & KNOWN_BITS & ~TIMESTAMP_TYPE_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buffer, header.position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, header.position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    rewrite_crc(buffer, header)


def rewrite_crc(buffer: WritableBuffer, header: RecordBatchHeader) -> int:
    """Compute and store the CRC of a changed batch; return it."""
    crc = crc32c(buffer[header.position + CRC_START : header.end])
    _UINT32.pack_into(buffer, header.position + CRC_START - 4, crc)
    return crc


def pack_header(buffer: WritableBuffer, header: RecordBatchHeader) -> None:
    """Write the fields of the header at its position, without computing the CRC."""
    _HEADER.pack_into(buffer, header.position, *header.fields())
