"""Records inside a batch: encoding and decoding, and the bounds of each length and count."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records import batch
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder, build_batch
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import append_varint, decode, encode, read_records
from odradek_wire.records.record_errors import ExpansionLimitError, InvalidRecordError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMESTAMPS = st.integers(-1, 1 << 62)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
CONTENT = st.none() | st.binary(max_size=300)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    deltas = draw(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=20))
    offset = draw(st.integers(0, 1 << 61))
    records = []
    for delta in deltas:
        offset += delta
        records.append(Record(offset, draw(TIMESTAMPS), draw(CONTENT), draw(CONTENT), draw(HEADERS)))
    return records


@given(record_lists(), st.sampled_from(Compression))
def test_a_built_batch_is_read_back(records: list[Record], compression: Compression) -> None:
    data = build_batch(records, compression=compression)
    header = batch.read_header(data)
    batch.check_crc(data, header)
    assert list(read_records(data, header)) == records
    assert (header.base_offset, header.last_offset, header.count) == (
        records[0].offset,
        records[-1].offset,
        len(records),
    )
    assert (header.base_timestamp, header.max_timestamp) == (
        records[0].timestamp,
        max(record.timestamp for record in records),
    )


@given(INT64)
def test_timestamps_of_any_size_survive(delta: int) -> None:
    records = [Record(0, 0, None, None), Record(1, delta, None, None)]
    assert list(decode(encode(records, 0, 0), 2, 0, 0)) == records


def test_header_names_that_are_not_utf_8_survive() -> None:
    name = b"\xff\xfe\x80".decode("utf-8", "surrogateescape")
    records = [Record(0, 0, None, None, ((name, None),))]
    data = encode(records, 0, 0)
    assert b"\xff\xfe\x80" in data
    assert list(decode(data, 1, 0, 0)) == records


def test_records_are_decoded_one_at_a_time() -> None:
    good = encode([Record(0, 0, b"a", b"b")], 0, 0)
    records = decode(good + b"\xff", 2, 0, 0)
    assert next(records) == Record(0, 0, b"a", b"b")
    with pytest.raises(InvalidRecordError):
        next(records)


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 30, -1])
def test_a_count_other_than_the_number_of_records_is_invalid(count: int) -> None:
    data = encode([Record(0, 0, b"a", b"b"), Record(1, 0, b"a", b"b")], 0, 0)
    with pytest.raises(InvalidRecordError):
        list(decode(data, count, 0, 0))


def record_of(*parts: bytes | int) -> bytes:
    """Return a record of these parts (numbers as zigzag varints) with a valid length."""
    body = bytearray()
    for part in parts:
        if isinstance(part, int):
            append_varint(body, part)
        else:
            body += part
    output = bytearray()
    append_varint(output, len(body))
    return bytes(output + body)


@pytest.mark.parametrize(
    "data",
    [
        record_of(b"\0", 0, 0, 5, b"abc", -1, 0),
        record_of(b"\0", 0, 0, -1, 1 << 31, b"abc", 0),
        record_of(b"\0", 0, 0, -1, -1, -1),
        record_of(b"\0", 0, 0, -1, -1, 1 << 30),
        record_of(b"\0", 0, 0, -1, -1, 1, -1, -1),
        record_of(b"\0", 0, 0, -1, -1, 1, 4, b"abc"),
        record_of(b"\0", 0, 0, -1, -1, 1, 1, b"a", 9),
        record_of(b"\0", 0, 0, -1, -1, 0, b"more"),
        record_of(b"\0", 0, 0, -1, -1),
        record_of(b"\0"),
        record_of(b"\0" + b"\xff" * 10 + b"\0", 0, -1, -1, 0),
        record_of(b"\0", 0, b"\xff" * 5 + b"\0", -1, -1, 0),
        b"\xff" * 5 + b"\0",
        b"\x01",
        b"\x00",
        b"",
    ],
    ids=[
        "key beyond the end",
        "value of 2 GiB",
        "negative number of headers",
        "a billion headers",
        "header without a name",
        "header name beyond the end",
        "header value beyond the end",
        "bytes behind the headers",
        "no headers field",
        "nothing but attributes",
        "timestamp varint of eleven bytes",
        "offset varint of six bytes",
        "length varint of six bytes",
        "negative length",
        "empty record",
        "no record",
    ],
)
def test_a_broken_record_is_invalid(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        list(decode(data, 1, 0, 0))


def test_a_key_cannot_extend_into_the_next_record() -> None:
    first = record_of(b"\0", 0, 0, 6, b"abc")
    second = record_of(b"\0", 0, 1, -1, -1, 0)
    with pytest.raises(InvalidRecordError):
        list(decode(first + second, 2, 0, 0))


def test_numbers_beyond_64_bits_are_invalid() -> None:
    data = encode([Record(0, 1, None, None)], 0, 0)
    with pytest.raises(InvalidRecordError):
        list(decode(data, 1, 0, (1 << 63) - 1))
    with pytest.raises(InvalidRecordError):
        list(decode(data, 1, (1 << 63) - 1, 0))
    with pytest.raises(InvalidRecordError):
        list(decode(data, 1, -(1 << 63), 0))


@pytest.mark.parametrize("compression", Compression)
def test_no_more_than_the_limit_is_decompressed(compression: Compression) -> None:
    data = build_batch([Record(0, 0, None, bytes(100_000))], compression=compression)
    header = batch.validate(data)
    assert [len(record.value or b"") for record in read_records(data, header, 100_020)] == [100_000]
    with pytest.raises(ExpansionLimitError):
        list(read_records(data, header, 99_999))


def test_a_builder_counts_offsets_up_and_refuses_a_lower_one() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(1, None, b"a")
    builder.append(2, None, b"b", offset=15)
    builder.append(3, None, b"c")
    with pytest.raises(ValueError, match="does not come after"):
        builder.append(4, None, b"d", offset=16)
    data = builder.build()
    offsets = [record.offset for record in read_records(data, batch.read_header(data))]
    assert offsets == [10, 15, 16]
    assert all(a < b for a, b in pairwise(offsets))


def test_a_batch_without_records_keeps_its_offsets() -> None:
    data = BatchBuilder(base_offset=10, producer_id=4, producer_epoch=1, base_sequence=3).build(last_offset=14)
    header = batch.read_header(data)
    assert (header.count, header.base_offset, header.last_offset, header.last_sequence) == (0, 10, 14, 7)
    assert list(read_records(data, header)) == []


def test_timestamps_too_far_apart_for_one_batch_are_rejected() -> None:
    builder = BatchBuilder()
    builder.append(-(1 << 63), None, None)
    with pytest.raises(InvalidRecordError):
        builder.append((1 << 63) - 1, None, None)
