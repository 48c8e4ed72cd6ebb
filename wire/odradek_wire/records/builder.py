"""Build batches of magic 2 from records: for coordinators, controllers, conversion, clients and tests.

To change an existing batch, patch it with `batch`; to change its codec, use `conversion`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_wire.records.attributes import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Compression,
    TimestampType,
)
from odradek_wire.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatchHeader,
    pack_header,
    rewrite_crc,
)
from odradek_wire.records.compression import compress
from odradek_wire.records.record import Header, Record
from odradek_wire.records.record_codec import append_record
from odradek_wire.records.record_errors import InvalidRecordError


class BatchBuilder:
    """Collects the records of one batch; `build` returns its bytes as a bytearray, which the caller may patch.

    Offsets count up from `base_offset`, unless a record has its own, which must be higher than all before it. With
    LOG_APPEND_TIME, the records keep their timestamp deltas and `log_append_time` is the max timestamp of the batch.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
    ) -> None:
        assert timestamp_type is not TimestampType.NO_TIMESTAMP_TYPE, "a batch of magic 2 has a timestamp type"
        self.base_offset = base_offset
        self.count = 0
        self._compression = compression
        self._level = compression_level
        self._log_append_time = log_append_time if timestamp_type is TimestampType.LOG_APPEND_TIME else None
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._partition_leader_epoch = partition_leader_epoch
        self._delete_horizon_ms = delete_horizon_ms
        self._attributes = (
            compression
            | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
            | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
        )
        self._data = bytearray()
        self._last_delta = -1
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP

    @property
    def size_so_far(self) -> int:
        """The size of the batch before compression."""
        return HEADER_SIZE + len(self._data)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),
        *,
        offset: int | None = None,
    ) -> None:
        delta = self._last_delta + 1 if offset is None else offset - self.base_offset
        if delta <= self._last_delta:
            raise ValueError(f"offset {offset} does not come after {self.base_offset + self._last_delta}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        timestamp_delta = timestamp - self._base_timestamp
        if not -(1 << 63) <= timestamp_delta < 1 << 63:
            raise InvalidRecordError(f"timestamp {timestamp} is too far from {self._base_timestamp}")
        append_record(self._data, delta, timestamp_delta, key, value, headers)
        self._last_delta = delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.count += 1

    def append_record(self, record: Record) -> None:
        """Append at the record's own offset."""
        self.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """Return the batch. `last_offset` may be higher than that of the last record, as in a compacted batch.

        Builds batches without records too: Kafka's cleaner keeps them for the last sequence of a producer.
        """
        body = compress(self._compression, self._data, self._level) if self._compression else self._data
        producer_id, producer_epoch, base_sequence = self._producer
        batch = bytearray(HEADER_SIZE)
        batch += body
        header = RecordBatchHeader(
            (
                self.base_offset,
                len(batch) - LOG_OVERHEAD,
                self._partition_leader_epoch,
                MAGIC,
                0,
                self._attributes,
                self._last_delta if last_offset is None else last_offset - self.base_offset,
                NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
                self._max_timestamp if self._log_append_time is None else self._log_append_time,
                producer_id,
                producer_epoch,
                base_sequence,
                self.count,
            )
        )
        pack_header(batch, header)
        rewrite_crc(batch, header)
        return batch


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Build one batch of records at their own offsets; its base offset is `base_offset` or that of the first record."""
    records = list(records)
    if base_offset is None:
        base_offset = records[0].offset if records else 0
    builder = BatchBuilder(
        base_offset=base_offset,
        compression=compression,
        compression_level=compression_level,
        timestamp_type=timestamp_type,
        log_append_time=log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        partition_leader_epoch=partition_leader_epoch,
    )
    for record in records:
        builder.append_record(record)
    return builder.build()
