"""The validation of producers' records. The expected outcomes are those of Kafka 4.3.0 and 3.9.1."""

import struct
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.errors import ErrorCode
from odradek_wire.records import batch, legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.compression import compress
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import RecordError, Rejection, ValidatedRecords, ValidationRules, validate
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import encode, read_records, records_data
from odradek_wire.records.record_summary import RecordSummary, summarize_records

NOW = 1_795_246_704_249
GZIP = Compression.GZIP
CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
BOTH = pytest.mark.parametrize("strict", [False, True], ids=["by default", "strict"])
LIMITS = {"timestamp_before_max_ms": 100_000, "timestamp_after_max_ms": 100_000}


def records(count: int = 3, *, timestamp: int = NOW, key: bytes | None = b"k") -> list[Record]:
    return [Record(index, timestamp + index, key, b"v%d" % index) for index in range(count)]


def with_valid_crc(data: bytes | bytearray) -> bytearray:
    """Return the data with a valid length and CRC."""
    data = bytearray(data)
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[17:21] = struct.pack(">I", crc32c(data[21:]))
    return data


def patched(data: bytes | bytearray, position: int, value: bytes) -> bytearray:
    data = bytearray(data)
    data[position : position + len(value)] = value
    return with_valid_crc(data)


def with_body(data: bytes | bytearray, body: bytes) -> bytearray:
    return with_valid_crc(bytes(data[:61]) + body)


def accepted(data: bytes | bytearray | memoryview, rules: ValidationRules) -> tuple[ValidatedRecords, list[Record]]:
    outcome = validate(data, rules, NOW, partition="t-0")
    assert isinstance(outcome, ValidatedRecords), outcome
    assert outcome.header == batch.validate(outcome.records)
    assert outcome.header.max_timestamp == outcome.max_timestamp
    return outcome, list(read_records(outcome.records, outcome.header))


def error(data: bytes | bytearray | memoryview, rules: ValidationRules) -> ErrorCode:
    outcome = validate(data, rules, NOW, partition="t-0")
    assert isinstance(outcome, Rejection), outcome
    return outcome.error


# --- valid batches


@BOTH
@pytest.mark.parametrize("codec", Compression)
def test_a_valid_batch_is_neither_changed_nor_copied(strict: bool, codec: Compression) -> None:
    data = memoryview(build_batch(records(), compression=codec))
    before = bytes(data)
    outcome, found = accepted(data, ValidationRules(strict=strict))
    assert outcome.records is data
    assert data == before
    assert found == records()
    assert (outcome.max_timestamp, outcome.log_append_time, outcome.was_rewritten) == (NOW + 2, -1, False)
    assert outcome.max_timestamp_delta == (2 if strict else None)


@BOTH
@pytest.mark.parametrize(
    "tail", [b"\1\2\3\4\5", bytes(build_batch(records()))[:70]], ids=["five bytes", "part of a batch"]
)
def test_a_partial_entry_after_the_batch_is_cut_off(strict: bool, tail: bytes) -> None:
    data = build_batch(records())
    outcome, _ = accepted(data + tail, ValidationRules(strict=strict))
    assert bytes(outcome.records) == data


@BOTH
def test_log_append_time_is_written_in_place(strict: bool) -> None:
    data = build_batch(records())
    outcome, found = accepted(data, ValidationRules(strict=strict, timestamp_type=APPEND))
    assert outcome.records is data
    assert (outcome.max_timestamp, outcome.log_append_time, outcome.was_rewritten) == (NOW, NOW, False)
    assert [record.timestamp for record in found] == [NOW] * 3


def test_records_in_a_read_only_buffer_are_copied() -> None:
    data = bytes(build_batch(records()))
    for unwritable in (data, memoryview(data)):
        outcome, found = accepted(unwritable, ValidationRules(timestamp_type=APPEND))
        assert outcome.was_rewritten
        assert [record.timestamp for record in found] == [NOW] * 3


@pytest.mark.parametrize("codec", [Compression.NONE, GZIP])
@pytest.mark.parametrize("wrong", [NOW - 50_000, NOW + 50_000, -5])
def test_reading_all_records_corrects_a_wrong_max_timestamp(codec: Compression, wrong: int) -> None:
    data = patched(build_batch(records(), compression=codec), 35, struct.pack(">q", wrong))
    outcome, _ = accepted(data, ValidationRules(strict=True))
    assert (outcome.max_timestamp, outcome.max_timestamp_delta, outcome.was_rewritten) == (NOW + 2, 2, False)


def test_a_max_timestamp_below_the_first_timestamp_is_corrected() -> None:
    outcome, _ = accepted(patched(build_batch(records()), 35, struct.pack(">q", NOW - 1)), ValidationRules())
    assert outcome.max_timestamp == NOW + 2


@BOTH
def test_records_without_timestamps_are_accepted(strict: bool) -> None:
    data = build_batch([record._replace(timestamp=-1) for record in records()])
    outcome, _ = accepted(data, ValidationRules(strict=strict, **LIMITS))  # type: ignore[arg-type]
    assert outcome.max_timestamp == -1


@BOTH
def test_timestamps_within_the_limits_are_accepted(strict: bool) -> None:
    edges = [Record(0, NOW, b"k", b""), Record(1, NOW - 100_000, b"k", b""), Record(2, NOW + 100_000, b"k", b"")]
    outcome, found = accepted(build_batch(edges), ValidationRules(strict=strict, **LIMITS))  # type: ignore[arg-type]
    assert (outcome.max_timestamp, outcome.max_timestamp_delta) == (NOW + 100_000, 2)
    assert found == edges


@BOTH
def test_a_producers_log_append_time_becomes_create_time(strict: bool) -> None:
    data = build_batch(records(), timestamp_type=APPEND, log_append_time=NOW)
    outcome, _ = accepted(data, ValidationRules(strict=strict))
    assert outcome.header is not None
    assert (outcome.header.timestamp_type, outcome.max_timestamp, outcome.log_append_time) == (CREATE, NOW, -1)


@BOTH
def test_a_coordinator_may_write_control_batches_at_any_offset(strict: bool) -> None:
    data = build_batch(records(), is_control=True)
    batch.set_base_offset(data, 0, 77)
    accepted(data, ValidationRules(strict=strict, from_client=False))


def test_a_control_batch_is_not_compressed() -> None:
    data = build_batch(records(), is_control=True)
    before = bytes(data)
    outcome, _ = accepted(data, ValidationRules(from_client=False, compression=Compression.GZIP))
    assert (bytes(outcome.records), outcome.was_rewritten) == (before, False)


# --- recompression


@pytest.mark.parametrize("before", Compression)
@pytest.mark.parametrize("after", Compression)
def test_a_batch_gets_the_topics_codec(before: Compression, after: Compression) -> None:
    data = build_batch(records(), compression=before, producer_id=5, producer_epoch=1, base_sequence=7)
    outcome, found = accepted(data, ValidationRules(compression=after))
    assert outcome.header is not None
    assert outcome.header.compression is after
    assert outcome.was_rewritten == (before is not after)
    assert (outcome.header.producer_id, outcome.header.base_sequence) == (5, 7)
    assert found == records()


def test_negative_timestamps_are_kept_but_rejected_in_a_rebuilt_batch() -> None:
    below = [record._replace(timestamp=-2) for record in records()]
    assert accepted(build_batch(below), ValidationRules(strict=True))[1] == below
    assert error(build_batch(below), ValidationRules(compression=GZIP)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error(legacy.build_message_set(below, magic=1), ValidationRules()) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_recompressed_batch_gets_log_append_time() -> None:
    outcome, found = accepted(build_batch(records()), ValidationRules(compression=GZIP, timestamp_type=APPEND))
    assert (outcome.was_rewritten, outcome.log_append_time) == (True, NOW)
    assert [record.timestamp for record in found] == [NOW] * 3


def gap() -> list[Record]:
    return [record._replace(offset=offset) for record, offset in zip(records(), (0, 5, 9), strict=True)]


@pytest.mark.parametrize(("before", "after"), [(Compression.NONE, GZIP), (GZIP, Compression.NONE)])
def test_a_rebuilt_batch_gets_consecutive_offsets(before: Compression, after: Compression) -> None:
    data = patched(build_batch(gap(), compression=before), 23, struct.pack(">i", 2))
    _, found = accepted(data, ValidationRules(compression=after))
    assert found == records()


@pytest.mark.parametrize("codec", [Compression.NONE, GZIP])
def test_offsets_with_gaps_are_rejected_unless_the_batch_is_rebuilt(codec: Compression) -> None:
    data = patched(build_batch(gap(), compression=codec), 23, struct.pack(">i", 2))
    assert error(data, ValidationRules(strict=True)) is ErrorCode.INVALID_RECORD


# --- batches that are refused


def changed(position: int, layout: str, value: int) -> Callable[[], bytearray]:
    return lambda: patched(build_batch(records()), position, struct.pack(layout, value))


def raw_length(length: int) -> Callable[[], bytearray]:
    def build() -> bytearray:
        data = build_batch(records())
        data[8:12] = struct.pack(">i", length)
        return data

    return build


REFUSED_BY_HEADER: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
    "eleven bytes": (lambda: build_batch(records())[:11], ErrorCode.INVALID_RECORD),
    "a header alone": (lambda: build_batch(records())[:61], ErrorCode.INVALID_RECORD),
    "one byte missing": (lambda: build_batch(records())[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (lambda: build_batch(records()) * 2, ErrorCode.INVALID_RECORD),
    "a tail with an impossible length": (lambda: build_batch(records()) + bytes(17), ErrorCode.CORRUPT_MESSAGE),
    "a wrong CRC": (lambda: build_batch(records())[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": (changed(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    "length 10": (raw_length(10), ErrorCode.CORRUPT_MESSAGE),
    "length 40": (raw_length(40), ErrorCode.CORRUPT_MESSAGE),
    "length -1": (raw_length(-1), ErrorCode.CORRUPT_MESSAGE),
    "base offset 5": (changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
    "count 0": (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "count -1": (changed(57, ">i", -1), ErrorCode.INVALID_RECORD),
    "count below the offsets": (changed(57, ">i", 2), ErrorCode.INVALID_RECORD),
    "negative offset range": (changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "codec 5": (changed(21, ">h", 5), ErrorCode.UNKNOWN_SERVER_ERROR),
    "codec 7": (changed(21, ">h", 7), ErrorCode.UNKNOWN_SERVER_ERROR),
    "a control batch": (lambda: build_batch(records(), is_control=True), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (
        lambda: build_batch(records(), producer_id=5, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
}


@BOTH
@pytest.mark.parametrize("case", REFUSED_BY_HEADER)
def test_a_wrong_header_is_rejected(case: str, strict: bool) -> None:
    build, expected = REFUSED_BY_HEADER[case]
    assert error(build(), ValidationRules(strict=strict)) is expected


def counted(count: int, codec: Compression = Compression.NONE) -> bytearray:
    data = patched(build_batch(records(), compression=codec), 57, struct.pack(">i", count))
    return patched(data, 23, struct.pack(">i", count - 1))


def lz4_with_dependent_blocks() -> bytearray:
    writer = cramjam.lz4.Compressor(block_linked=True, content_checksum=False)
    writer.compress(encode(records(), 0, NOW))
    return with_body(build_batch(records(), compression=Compression.LZ4), bytes(writer.finish()))


BODY = encode(records(), 0, NOW)
REFUSED_BY_RECORDS: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "fewer counted than there": (lambda: counted(2), ErrorCode.INVALID_RECORD),
    "more counted than there": (lambda: counted(4), ErrorCode.INVALID_RECORD),
    "fewer counted than there, compressed": (lambda: counted(2, GZIP), ErrorCode.INVALID_RECORD),
    "more counted than there, compressed": (lambda: counted(4, GZIP), ErrorCode.INVALID_RECORD),
    "no body": (lambda: with_body(build_batch(records()), b""), ErrorCode.INVALID_RECORD),
    "a record's length": (lambda: with_body(build_batch(records()), b"\x7e" + BODY[1:]), ErrorCode.INVALID_RECORD),
    "plain called gzip": (changed(21, ">h", 1), ErrorCode.UNKNOWN_SERVER_ERROR),
    "lz4 with dependent blocks": (lz4_with_dependent_blocks, ErrorCode.UNKNOWN_SERVER_ERROR),
}


@pytest.mark.parametrize("case", REFUSED_BY_RECORDS)
def test_wrong_records_are_rejected_if_all_records_are_read(case: str) -> None:
    build, expected = REFUSED_BY_RECORDS[case]
    assert error(build(), ValidationRules(strict=True)) is expected
    assert isinstance(validate(build(), ValidationRules(), NOW), ValidatedRecords)


@pytest.mark.parametrize("codec", [GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("kind", ["cut off", "garbage"])
def test_malformed_compressed_data_are_an_unknown_server_error(codec: Compression, kind: str) -> None:
    good = build_batch(records(10), compression=codec)
    data = with_body(good, bytes(good[61:-6]) if kind == "cut off" else b"garbage!!")
    assert error(data, ValidationRules(strict=True)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_records_that_expand_beyond_the_limit_are_too_large() -> None:
    data = build_batch([Record(0, NOW, None, bytes(100_000))], compression=GZIP)
    assert error(data, ValidationRules(strict=True, expansion_limit=50_000)) is ErrorCode.MESSAGE_TOO_LARGE


# --- records that are refused one by one


@BOTH
@pytest.mark.parametrize("codec", [Compression.NONE, GZIP])
def test_a_record_outside_the_limits_is_named(strict: bool, codec: Compression) -> None:
    data = build_batch([*records(2), Record(2, NOW - 200_000, b"k", b"v")], compression=codec)
    assert validate(data, ValidationRules(strict=strict, **LIMITS), NOW, partition="t-0") == Rejection(  # type: ignore[arg-type]
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        (
            RecordError(
                2,
                f"Timestamp {NOW - 200_000} of message with offset 2 is out of range. "
                f"The timestamp should be within [{NOW - 100_000}, {NOW + 100_000}]",
            ),
        ),
    )


@BOTH
def test_a_future_timestamp_is_found_by_the_header_alone(strict: bool) -> None:
    data = build_batch([*records(2), Record(2, NOW + 3_600_001, b"k", b"v")])
    outcome = validate(data, ValidationRules(strict=strict), NOW)
    assert isinstance(outcome, Rejection)
    assert (outcome.error, [fault.batch_index for fault in outcome.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [2])


@BOTH
def test_log_append_time_topics_have_no_limits(strict: bool) -> None:
    accepted(build_batch(records(timestamp=5)), ValidationRules(strict=strict, timestamp_type=APPEND, **LIMITS))  # type: ignore[arg-type]


@BOTH
def test_records_without_keys_are_named_in_compacted_topics(strict: bool) -> None:
    outcome = validate(
        build_batch(records(5, key=None)), ValidationRules(strict=strict, compacted=True), NOW, partition="t-0"
    )
    fault = "Compacted topic cannot accept message without key in topic partition t-0"
    assert outcome == Rejection(
        ErrorCode.INVALID_RECORD,
        "One or more records have been rejected due to 5 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=0, message='{fault}'), RecordError(batchIndex=1, message='{fault}'), "
        f"RecordError(batchIndex=2, message='{fault}')]",
        tuple(RecordError(index, fault) for index in range(5)),
    )


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    data = build_batch([Record(0, NOW, None, b""), Record(1, NOW + 10**9, b"k", b"")])
    outcome = validate(data, ValidationRules(compacted=True), NOW)
    assert isinstance(outcome, Rejection)
    assert (outcome.error, [fault.batch_index for fault in outcome.record_errors]) == (
        ErrorCode.INVALID_TIMESTAMP,
        [0, 1],
    )


@BOTH
@pytest.mark.parametrize(("topic", "stamp"), [(APPEND, NOW), (CREATE, -1), (CREATE, NOW + 10**10)])
def test_a_batch_with_log_append_time_is_rejected(strict: bool, topic: TimestampType, stamp: int) -> None:
    data = build_batch(records(2), timestamp_type=APPEND, log_append_time=stamp)
    outcome = validate(data, ValidationRules(strict=strict, timestamp_type=topic), NOW)
    assert isinstance(outcome, Rejection)
    assert (outcome.error, len(outcome.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 2)
    if (topic, stamp) == (CREATE, -1):
        assert outcome.record_errors[0].message == (
            "Invalid timestamp type in message DefaultRecord(offset=0, timestamp=-1, key=1 bytes, value=2 bytes). "
            "Producer should not set timestamp type to LogAppendTime."
        )


# --- old producers


@BOTH
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_set_becomes_one_batch(strict: bool, codec: Compression, magic: int) -> None:
    data = legacy.build_message_set(records(), magic=magic, compression=codec)
    outcome, found = accepted(data, ValidationRules(strict=strict))
    assert outcome.header is not None
    assert outcome.was_rewritten
    assert outcome.header.compression is codec
    assert found == ([record._replace(timestamp=-1) for record in records()] if magic == 0 else records())


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_set_obeys_the_topics_settings(magic: int) -> None:
    plain = legacy.build_message_set(records(), magic=magic)
    outcome, found = accepted(plain, ValidationRules(compression=GZIP, timestamp_type=APPEND))
    assert outcome.header is not None
    assert (outcome.header.compression, outcome.log_append_time) == (GZIP, NOW)
    assert [record.timestamp for record in found] == [NOW] * 3
    keyless = legacy.build_message_set(records(key=None), magic=magic)
    assert error(keyless, ValidationRules(compacted=True)) is ErrorCode.INVALID_RECORD
    old = legacy.build_message_set(records(timestamp=NOW - 200_000), magic=magic)
    limited = ValidationRules(**LIMITS)  # type: ignore[arg-type]
    if magic == 1:
        assert error(old, limited) is ErrorCode.INVALID_TIMESTAMP
    else:
        accepted(old, limited)


def test_a_partial_old_message_is_cut_off_and_may_leave_nothing() -> None:
    data = legacy.build_message_set(records(), magic=1)[:-3]
    assert accepted(data, ValidationRules())[1] == records()[:2]
    alone = legacy.build_message_set(records(1), magic=1)[:-3]
    assert validate(alone, ValidationRules(), NOW) == ValidatedRecords(b"", None, -1, None, -1, False)


def wrapper(inner: bytes | bytearray | None, magic: int, codec: Compression = GZIP) -> bytearray:
    data = bytearray()
    legacy.append_message(data, 2, magic, codec, NOW, None, inner)
    return data


def patched_magic(data: bytearray, magic: int) -> bytearray:
    data[16] = magic
    return data


def flipped(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


REFUSED_MESSAGE_SETS: dict[str, tuple[Callable[[int], bytes | bytearray], ErrorCode]] = {
    "two wrappers": (
        lambda magic: legacy.build_message_set(records(), magic=magic, compression=GZIP) * 2,
        ErrorCode.INVALID_RECORD,
    ),
    "a message and a wrapper": (
        lambda magic: (
            legacy.build_message_set(records(), magic=magic)
            + legacy.build_message_set(records(), magic=magic, compression=GZIP)
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "both magics": (
        lambda magic: (
            legacy.build_message_set(records(), magic=magic) + legacy.build_message_set(records(), magic=1 - magic)
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown magic after a message": (
        lambda magic: (
            legacy.build_message_set(records(1), magic=magic)
            + patched_magic(legacy.build_message_set(records(1), magic=magic), 17)
        ),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a batch after a message": (
        lambda magic: legacy.build_message_set(records(), magic=magic) + build_batch(records()),
        ErrorCode.INVALID_RECORD,
    ),
    "a wrong CRC": (
        lambda magic: flipped(legacy.build_message_set(records(1), magic=magic)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a wrong CRC inside": (
        lambda magic: wrapper(compress(GZIP, flipped(legacy.build_message_set(records(), magic=magic))), magic),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "garbage inside": (lambda magic: wrapper(b"garbage", magic), ErrorCode.UNKNOWN_SERVER_ERROR),
    "a wrapper of null": (lambda magic: wrapper(None, magic), ErrorCode.INVALID_RECORD),
    "a wrapper of nothing": (lambda magic: wrapper(compress(GZIP, b""), magic), ErrorCode.INVALID_RECORD),
    "the other magic inside": (
        lambda magic: wrapper(compress(GZIP, legacy.build_message_set(records(), magic=1 - magic)), magic),
        ErrorCode.INVALID_RECORD,
    ),
    "a wrapper inside": (
        lambda magic: wrapper(
            compress(GZIP, legacy.build_message_set(records(), magic=magic, compression=GZIP)), magic
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "zstd": (
        lambda magic: wrapper(
            compress(Compression.ZSTD, legacy.build_message_set(records(), magic=magic)), magic, Compression.ZSTD
        ),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("case", REFUSED_MESSAGE_SETS)
def test_a_wrong_message_set_is_rejected(case: str, magic: int) -> None:
    build, expected = REFUSED_MESSAGE_SETS[case]
    assert error(build(magic), ValidationRules()) is expected


# --- record summaries


@given(st.lists(st.tuples(st.integers(-(1 << 40), 1 << 40), st.booleans(), st.integers(1, 3)), min_size=1, max_size=20))
def test_a_record_summary_agrees_with_the_decoded_records(drawn: list[tuple[int, bool, int]]) -> None:
    offset = 0
    found = []
    for timestamp, keyed, step in drawn:
        found.append(Record(offset, timestamp, b"k" * 70 if keyed else None, b"v", (("h", None),) if keyed else ()))
        offset += step
    data = build_batch(found)
    header = batch.read_header(data)
    timestamps = [record.timestamp for record in found]
    assert summarize_records(records_data(data, header), len(found)) == RecordSummary(
        min(timestamps) - header.base_timestamp,
        max(timestamps) - header.base_timestamp,
        timestamps.index(max(timestamps)),
        all(record.key is not None for record in found),
        all(step == 1 for _, _, step in drawn[:-1]),
    )
