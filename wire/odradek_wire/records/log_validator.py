"""Validate the records that a producer sends, and convert them to the form that the topic wants (Kafka's LogValidator).

    outcome = validate(data, rules, now_ms, partition="orders-0")
    match outcome:
        case Rejection():         # write nothing; error code, message and record errors of the response
        case ValidatedRecords():  # one batch with base offset 0, for `set_offset_and_leader_epoch`

`data` is the `records` field of one partition of a Produce request. If a patch is enough and `data` is writable, it is
patched in place (`was_rewritten` is False, and `records` is the same memory without a partial entry at its end).
Otherwise `records` is a new bytearray. ValidationRules are the effective settings of a topic.

By default the header of a batch of magic 2 decides wherever it can; `strict` reads every record, as Kafka does.
Compacted topics, timestamp limits that the header cannot prove, recompression, and message sets of magic 0 and 1 need
every record in either case. A message set becomes one batch.

Leaves to the log: size limits (before, and again if `was_rewritten`), sequences, producer epochs, offsets. Leaves to
the handler of Produce: what each version allows (only magic 2 from version 3 on, zstd from 7 on; an empty `records`
field is no error before 3), and transactions. Kafka sends the message of a rejection to the client only if there are
record errors.

The error codes are those of Kafka 4.3.0 and 3.9.1, with these differences: offset deltas other than 0, 1, 2 … are
INVALID_RECORD unless the batch is rebuilt anyway (Kafka writes them into its log, or returns UNKNOWN_SERVER_ERROR if
they are compressed); data that decompress to more than `expansion_limit` are MESSAGE_TOO_LARGE; a varint that is too
long is INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_wire.errors import ErrorCode
from odradek_wire.records import batch, legacy
from odradek_wire.records.attributes import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    Compression,
    TimestampType,
)
from odradek_wire.records.batch import Buffer, RecordBatchHeader
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.compression import DEFAULT_EXPANSION_LIMIT
from odradek_wire.records.conversion import recompress
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import decode, read_records, records_data
from odradek_wire.records.record_errors import (
    BadCompressionError,
    CorruptRecordError,
    ExpansionLimitError,
    InvalidRecordError,
)
from odradek_wire.records.record_summary import summarize_records

_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRules:
    """The settings of a topic for its records."""

    strict: bool = False
    from_client: bool = True
    """False for batches of a coordinator, which may be control batches and have gaps between offsets."""
    compacted: bool = False
    compression: Compression | None = None
    """None is `producer`: keep the codec of the batch."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _MAX_LONG
    timestamp_after_max_ms: int = 3_600_000
    expansion_limit: int = DEFAULT_EXPANSION_LIMIT

    reads_every_record: bool = field(init=False, repr=False, compare=False)
    sets_append_time: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sets_append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        object.__setattr__(self, "sets_append_time", sets_append_time)
        limited = not sets_append_time and self.timestamp_before_max_ms != _MAX_LONG
        object.__setattr__(self, "reads_every_record", self.strict or self.compacted or limited)


class RecordError(NamedTuple):
    """The fault of one record, by its index in the batch (KIP-467)."""

    batch_index: int
    message: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """The error code and message of records that must not be written."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


class ValidatedRecords(NamedTuple):
    """One batch, ready for its offset."""

    records: Buffer
    header: RecordBatchHeader | None
    """The header of `records`; None if there is nothing to write (an old set without a whole message)."""
    max_timestamp: int
    max_timestamp_delta: int | None
    """The offset delta of the first record with that timestamp; None if no record was read, and with log append
    time."""
    log_append_time: int
    """-1 with CREATE_TIME."""
    was_rewritten: bool


class _RejectedError(Exception):
    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection


def validate(data: Buffer, rules: ValidationRules, now_ms: int, *, partition: str = "") -> ValidatedRecords | Rejection:
    """Validate the `records` field of one partition and convert it to the form that its topic wants."""
    try:
        if len(data) >= batch.HEADER_SIZE and data[batch.MAGIC_POSITION] == batch.MAGIC:
            return _validate_batch(data, rules, now_ms, partition)
        size = batch.entry_size_at(data)
        if size is None or len(data) <= batch.MAGIC_POSITION:
            return Rejection(ErrorCode.INVALID_RECORD, "there is no record batch")
        magic = batch.magic_at(data)
        if magic in (0, 1):
            return _validate_message_set(data, rules, now_ms, partition)
        if magic != batch.MAGIC:
            return Rejection(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
        return Rejection(ErrorCode.INVALID_RECORD, "there is no whole record batch")
    except _RejectedError as rejected:
        return rejected.rejection
    except ExpansionLimitError as error:
        return Rejection(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except BadCompressionError as error:
        return Rejection(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    except InvalidRecordError as error:
        return Rejection(ErrorCode.INVALID_RECORD, str(error))
    except CorruptRecordError as error:
        return Rejection(ErrorCode.CORRUPT_MESSAGE, str(error))


def _validate_batch(data: Buffer, rules: ValidationRules, now_ms: int, partition: str) -> ValidatedRecords | Rejection:
    header = batch.peek_header(data)
    if header.end != len(data):
        if header.end > len(data):
            return Rejection(ErrorCode.INVALID_RECORD, "there is no whole record batch")
        size = batch.entry_size_at(data, header.end)
        if size is not None and size <= len(data) - header.end:
            return Rejection(ErrorCode.INVALID_RECORD, "more than one record batch")
        data = memoryview(data)[: header.end]
    refused = _reject_by_header(data, header, rules)
    if refused is not None:
        return refused
    attributes = header.attributes
    codec = attributes & COMPRESSION_MASK
    latest = header.max_timestamp
    if (
        rules.reads_every_record
        or (rules.compression is not None and codec != rules.compression)
        or attributes & TIMESTAMP_TYPE_BIT
        or (
            not rules.sets_append_time
            and (latest - now_ms > rules.timestamp_after_max_ms or latest < header.base_timestamp)
        )
    ):
        return _validate_records(data, header, rules, now_ms, partition)
    if rules.sets_append_time:
        return _with_append_time(data, header, now_ms)
    return ValidatedRecords(data, header, latest, None, NO_TIMESTAMP, False)


def _reject_by_header(data: Buffer, header: RecordBatchHeader, rules: ValidationRules) -> Rejection | None:
    """Check the header in Kafka's order: base offset, CRC, codec, count, control bit, sequence."""
    if header.base_offset != 0 and rules.from_client:
        return Rejection(
            ErrorCode.INVALID_RECORD, f"The baseOffset of the record batch should be 0, but it is {header.base_offset}"
        )
    if not batch.is_crc_valid(data, header):
        return Rejection(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    if header.attributes & COMPRESSION_MASK >= len(COMPRESSIONS):
        return Rejection(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.attributes & COMPRESSION_MASK}"
        )
    if not rules.from_client:
        return None
    span = header.last_offset_delta + 1
    if span <= 0:
        return Rejection(ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range: [0, {span - 1}]")
    if header.count <= 0:
        return Rejection(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {header.count}")
    if header.count != span:
        return Rejection(
            ErrorCode.INVALID_RECORD, f"Inconsistent batch offset range [0, {span - 1}] and count {header.count}"
        )
    if header.is_control:
        return Rejection(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        return Rejection(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}",
        )
    return None


def _validate_records(
    data: Buffer, header: RecordBatchHeader, rules: ValidationRules, now_ms: int, partition: str
) -> ValidatedRecords:
    """Read every record of a batch, and recompress it if the topic wants another codec."""
    body = records_data(data, header, rules.expansion_limit)
    summary = summarize_records(body, header.count)
    has_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    latest = header.max_timestamp if has_append_time else header.base_timestamp + summary.highest_timestamp_delta
    earliest = header.max_timestamp if has_append_time else header.base_timestamp + summary.lowest_timestamp_delta
    if latest > _MAX_LONG or earliest < -_MAX_LONG:
        raise InvalidRecordError("timestamps do not fit in 64 bits")
    if (
        (rules.compacted and not summary.all_have_keys)
        or (has_append_time and (rules.sets_append_time or latest == NO_TIMESTAMP))
        or (not rules.sets_append_time and not _all_within(earliest, latest, rules, now_ms))
    ):
        records = decode(
            body,
            header.count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if has_append_time else None,
        )
        _reject_wrong_records(records, header.timestamp_type, rules, now_ms, partition)
    # A control batch keeps its codec, so that readers of control records need not decompress.
    if rules.compression is not None and header.compression is not rules.compression and not header.is_control:
        _reject_negative_timestamp(earliest)
        if summary.are_consecutive and not has_append_time:
            data = recompress(data, header, rules.compression, rules.compression_level, rules.expansion_limit)
        else:
            data = _rebuild(data, header, rules)
        rewritten = True
        header = batch.read_header(data)
    else:
        if not summary.are_consecutive and rules.from_client:
            raise InvalidRecordError("The offsets inside the record batch are not consecutive")
        rewritten = False
    if rules.sets_append_time:
        return _with_append_time(data, header, now_ms, rewritten=rewritten)
    latest = max(latest, NO_TIMESTAMP)
    if header.attributes & TIMESTAMP_TYPE_BIT or header.max_timestamp != latest:
        data, header, copied = _with_timestamps(data, header, TimestampType.CREATE_TIME, latest)
        rewritten = rewritten or copied
    return ValidatedRecords(
        data, header, latest, None if has_append_time else summary.index_of_highest, NO_TIMESTAMP, rewritten
    )


def _rebuild(data: Buffer, header: RecordBatchHeader, rules: ValidationRules) -> bytearray:
    """Build a new batch with offsets 0, 1, 2 … and the effective timestamps, like Kafka for a batch that it cannot
    keep."""
    assert rules.compression is not None
    builder = BatchBuilder(
        compression=rules.compression,
        compression_level=rules.compression_level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
    for record in read_records(data, header, rules.expansion_limit):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build()


def _with_append_time(
    data: Buffer, header: RecordBatchHeader, now_ms: int, *, rewritten: bool = False
) -> ValidatedRecords:
    data, header, copied = _with_timestamps(data, header, TimestampType.LOG_APPEND_TIME, now_ms)
    return ValidatedRecords(data, header, now_ms, None, now_ms, rewritten or copied)


def _with_timestamps(
    data: Buffer, header: RecordBatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> tuple[Buffer, RecordBatchHeader, bool]:
    """Set timestamp type and max timestamp, in a copy if `data` is read-only; return the data, their header, and
    whether they are a copy."""
    copied = False
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        data = bytearray(data)
        copied = True
    batch.set_max_timestamp(data, header, timestamp_type, max_timestamp)
    return data, batch.read_header(data), copied


def _all_within(earliest: int, latest: int, rules: ValidationRules, now_ms: int) -> bool:
    """Return whether both timestamps are within the limits; -1 (none) may not be, and is still valid in a record."""
    return now_ms - earliest <= rules.timestamp_before_max_ms and latest - now_ms <= rules.timestamp_after_max_ms


def _reject_wrong_records(
    records: Iterable[Record], timestamp_type: TimestampType, rules: ValidationRules, now_ms: int, partition: str
) -> None:
    """Raise the rejection with the first fault of every wrong record."""
    errors: list[RecordError] = []
    bad_timestamps = False
    for index, record in enumerate(records):
        if rules.compacted and record.key is None:
            where = f" in topic partition {partition}" if partition else ""
            errors.append(RecordError(index, f"Compacted topic cannot accept message without key{where}"))
        elif not rules.sets_append_time and record.timestamp != NO_TIMESTAMP:
            if not _all_within(record.timestamp, record.timestamp, rules, now_ms):
                bad_timestamps = True
                errors.append(RecordError(index, _out_of_range(record, rules, now_ms)))
        elif timestamp_type is TimestampType.LOG_APPEND_TIME:
            bad_timestamps = True
            errors.append(
                RecordError(
                    index,
                    f"Invalid timestamp type in message {_described(record)}. "
                    "Producer should not set timestamp type to LogAppendTime.",
                )
            )
    if not errors:
        return
    if bad_timestamps:
        code, message = ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
    else:
        code = ErrorCode.INVALID_RECORD
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:3])
        message = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
    raise _RejectedError(Rejection(code, message, tuple(errors)))


def _described(record: Record) -> str:
    key, value = len(record.key or b""), len(record.value or b"")
    return f"DefaultRecord(offset={record.offset}, timestamp={record.timestamp}, key={key} bytes, value={value} bytes)"


def _reject_negative_timestamp(timestamp: int) -> None:
    """Raise for a timestamp below -1, which Kafka keeps in an unchanged batch but cannot write into a new one."""
    if timestamp < NO_TIMESTAMP:
        raise _RejectedError(Rejection(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid negative timestamp {timestamp}"))


def _out_of_range(record: Record, rules: ValidationRules, now_ms: int) -> str:
    first = now_ms - rules.timestamp_before_max_ms
    last = now_ms + rules.timestamp_after_max_ms
    return (
        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{first}, {last}]"
    )


def _validate_message_set(
    data: Buffer, rules: ValidationRules, now_ms: int, partition: str
) -> ValidatedRecords | Rejection:
    """Convert the set of an old producer, one wrapper or any number of messages of one magic, to one batch."""
    messages = list(_messages(data))
    if not messages:
        return ValidatedRecords(b"", None, NO_TIMESTAMP, None, NO_TIMESTAMP, False)
    codec = max(message.compression for message in messages)
    if codec and len(messages) > 1:
        return Rejection(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    builder = BatchBuilder(
        compression=codec if rules.compression is None else rules.compression,
        compression_level=None if rules.compression is None else rules.compression_level,
        timestamp_type=rules.timestamp_type,
        log_append_time=now_ms,
    )
    for message in messages:
        records = legacy.read_records(message, max(0, rules.expansion_limit - builder.size_so_far))
        _reject_wrong_records(records, message.timestamp_type, rules, now_ms, partition)
        for record in records:
            _reject_negative_timestamp(record.timestamp)
            builder.append(record.timestamp, record.key, record.value)
    data = builder.build()
    header = batch.read_header(data)
    return ValidatedRecords(
        data, header, header.max_timestamp, None, now_ms if rules.sets_append_time else NO_TIMESTAMP, True
    )


def _messages(data: Buffer) -> Iterator[legacy.LegacyMessage]:
    """Yield the whole messages. Raises InvalidRecordError for another magic among them."""
    position = 0
    while position < len(data):
        size = batch.entry_size_at(data, position)
        if size is None or size > len(data) - position:
            return
        magic = batch.magic_at(data, position)
        if magic != batch.magic_at(data) and 0 <= magic <= batch.MAGIC:
            raise InvalidRecordError("Batch magic is not the same as the first batch's magic byte")
        message = legacy.read_message(data, position)
        yield message
        position += size
