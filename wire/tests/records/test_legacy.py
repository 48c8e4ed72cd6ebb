"""Message sets of magic 0 and 1."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records import legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.compression import compress
from odradek_wire.records.crc import crc32
from odradek_wire.records.record import Record
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError, UnsupportedRecordsError

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
RECORDS = [Record(20, 1000, b"k", b"v"), Record(21, 1005, None, b"w"), Record(25, 1002, b"x", None)]


def without_timestamps(records: list[Record]) -> list[Record]:
    return [record._replace(timestamp=-1) for record in records]


CONTENT = st.none() | st.binary(max_size=200)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(1, 1 << 40))
    records = []
    for delta in draw(st.lists(st.integers(1, 1000), min_size=1, max_size=15)):
        offset += delta
        records.append(Record(offset, draw(st.integers(-1, 1 << 50)), draw(CONTENT), draw(CONTENT)))
    return records


@given(record_lists(), st.sampled_from(CODECS))
def test_message_sets_of_magic_1_are_read_as_written(records: list[Record], codec: Compression) -> None:
    data = legacy.build_message_set(records, magic=1, compression=codec)
    assert list(legacy.read_message_set(data)) == records


@given(record_lists(), st.sampled_from(CODECS))
def test_message_sets_of_magic_0_are_read_as_written_but_for_timestamps(
    records: list[Record], codec: Compression
) -> None:
    data = legacy.build_message_set(records, magic=0, compression=codec)
    assert list(legacy.read_message_set(data)) == without_timestamps(records)


def test_an_uncompressed_message_has_kafkas_layout() -> None:
    body = struct.pack(">bbqi1si1s", 1, 0, 1000, 1, b"k", 1, b"v")
    message = struct.pack(">qiI", 20, len(body) + 4, crc32(body)) + body
    assert legacy.build_message_set(RECORDS[:1], magic=1) == message
    (read,) = legacy.iterate(message)
    assert (read.offset, read.magic, read.timestamp, read.key, read.value) == (20, 1, 1000, b"k", b"v")
    assert (read.position, read.size_in_bytes) == (0, len(message))


def test_a_wrapper_of_magic_1_has_the_last_offset_and_relative_ones_inside() -> None:
    (wrapper,) = legacy.iterate(legacy.build_message_set(RECORDS, magic=1, compression=Compression.GZIP))
    assert (wrapper.offset, wrapper.key, wrapper.timestamp) == (25, None, 1005)
    assert wrapper.compression is Compression.GZIP
    assert wrapper.timestamp_type is TimestampType.CREATE_TIME
    assert legacy.read_records(wrapper) == RECORDS


def test_a_wrapper_whose_offset_is_0_leaves_the_relative_offsets() -> None:
    data = legacy.build_message_set(RECORDS, magic=1, compression=Compression.GZIP)
    data[:8] = bytes(8)
    assert [record.offset for record in legacy.read_message_set(data)] == [0, 1, 5]


def test_a_wrapper_with_log_append_time_replaces_inner_timestamps() -> None:
    data = legacy.build_message_set(
        RECORDS,
        magic=1,
        compression=Compression.SNAPPY,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=9000,
    )
    (wrapper,) = legacy.iterate(data)
    assert wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(legacy.read_message_set(data)) == [record._replace(timestamp=9000) for record in RECORDS]


def test_magic_0_has_no_timestamp_type() -> None:
    (message, *_) = legacy.iterate(legacy.build_message_set(RECORDS, magic=0))
    assert (message.timestamp_type, message.timestamp) == (TimestampType.NO_TIMESTAMP_TYPE, -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_cannot_be_compressed_with_zstd(magic: int) -> None:
    with pytest.raises(UnsupportedRecordsError):
        legacy.build_message_set(RECORDS, magic=magic, compression=Compression.ZSTD)
    data = bytearray()
    legacy.append_message(data, 0, magic, Compression.ZSTD, 0, None, b"")
    with pytest.raises(InvalidRecordError):
        list(legacy.read_message_set(data))


def test_a_partial_trailing_message_ends_a_fetched_set() -> None:
    data = bytes(legacy.build_message_set(RECORDS, magic=1))
    for kept in range(len(data)):
        whole = list(legacy.read_message_set(data[:kept], allow_partial=True))
        assert whole == RECORDS[: len(whole)]
    with pytest.raises(CorruptRecordError):
        list(legacy.read_message_set(data[:-1]))


@pytest.mark.parametrize("magic", [0, 1])
def test_any_flipped_bit_of_a_message_is_found(magic: int) -> None:
    data = legacy.build_message_set(RECORDS[:1], magic=magic)
    for position in range(12, len(data)):
        data[position] ^= 0x04
        with pytest.raises(CorruptRecordError):
            legacy.read_message(data)
        data[position] ^= 0x04


def wrapped(inner: bytes | bytearray | None, *, magic: int = 1, codec: int = Compression.GZIP) -> bytearray:
    data = bytearray()
    value = None if inner is None else compress(Compression(codec), inner, magic=magic)
    legacy.append_message(data, 3, magic, codec, 0, None, value)
    return data


def test_wrappers_with_invalid_inner_messages_are_invalid() -> None:
    nested = wrapped(legacy.build_message_set(RECORDS, magic=1))
    other_magic = wrapped(legacy.build_message_set(RECORDS, magic=0))
    below_zero = wrapped(legacy.build_message_set(RECORDS, magic=1))  # relative offsets 20 to 25 below a wrapper at 3
    for data in (wrapped(None), wrapped(b""), wrapped(nested), other_magic, below_zero):
        with pytest.raises(InvalidRecordError):
            list(legacy.read_message_set(data))


def test_an_inner_message_with_a_wrong_crc_is_corrupt() -> None:
    inner = legacy.build_message_set(RECORDS, magic=1)
    inner[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        list(legacy.read_message_set(wrapped(inner)))


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">bbq", 1, 0, 0),
        struct.pack(">bbqii", 1, 0, 0, 5, -1),
        struct.pack(">bbqii", 1, 0, 0, -1, 1 << 30),
        struct.pack(">bbqiib", 1, 0, 0, -1, -1, 0),
        struct.pack(">bbqii", 2, 0, 0, -1, -1),
        struct.pack(">bbi", 1, 0, 0) + bytes(4),
    ],
    ids=["no key", "key beyond the end", "value beyond the end", "bytes behind the value", "magic 2", "no timestamp"],
)
def test_a_broken_message_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        legacy.read_message(struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body)
