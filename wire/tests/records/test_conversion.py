"""Conversion of records to another format or codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records import batch, conversion, legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.control import end_txn_marker_batch
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import CorruptRecordError, UnsupportedRecordsError

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
RECORDS = [
    Record(20, 1000, b"k", b"v", (("name", b"content"),)),
    Record(21, 1005, None, b"w"),
    Record(25, 1002, b"x", None),
]


def plain(records: list[Record], *, timestamps: bool = True) -> list[Record]:
    """Return the records as an old format has them."""
    return [record._replace(headers=(), timestamp=record.timestamp if timestamps else -1) for record in records]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_keeps_offsets_and_codec_and_drops_headers(magic: int, codec: Compression) -> None:
    data = conversion.down_convert(build_batch(RECORDS, compression=codec), magic)
    messages = list(legacy.iterate(data))
    assert [message.compression for message in messages] == [codec] * (1 if codec else 3)
    assert {message.magic for message in messages} == {magic}
    assert list(legacy.read_message_set(data)) == plain(RECORDS, timestamps=magic == 1)


def test_down_conversion_drops_control_batches() -> None:
    marker = end_txn_marker_batch(
        commit=True, coordinator_epoch=1, producer_id=1, producer_epoch=0, timestamp=5, base_offset=26
    )
    assert conversion.down_convert(marker, 1) == b""
    data = conversion.down_convert(build_batch(RECORDS) + marker, 1)
    assert list(legacy.read_message_set(data)) == plain(RECORDS)


def test_down_conversion_refuses_zstd() -> None:
    with pytest.raises(UnsupportedRecordsError):
        conversion.down_convert(build_batch(RECORDS, compression=Compression.ZSTD), 1)


def test_down_conversion_drops_only_uncompressed_records_before_the_offset() -> None:
    def offsets(codec: Compression) -> list[int]:
        data = conversion.down_convert(build_batch(RECORDS, compression=codec), 1, first_offset=21)
        return [record.offset for record in legacy.read_message_set(data)]

    assert offsets(Compression.NONE) == [21, 25]
    assert offsets(Compression.GZIP) == [20, 21, 25]


def test_down_conversion_copies_old_entries_and_drops_a_partial_one() -> None:
    old, middle, new = (
        legacy.build_message_set([Record(1, 1, None, b"a")], magic=0),
        legacy.build_message_set([Record(2, 2, None, b"b")], magic=1),
        build_batch([Record(3, 3, None, b"c")]),
    )
    mixed = bytes(old + middle + new + new[:30])
    to_1 = conversion.down_convert(mixed, 1)
    assert to_1.startswith(old + middle)
    assert list(legacy.read_message_set(to_1)) == [
        Record(1, -1, None, b"a"),
        Record(2, 2, None, b"b"),
        Record(3, 3, None, b"c"),
    ]
    to_0 = conversion.down_convert(mixed, 0)
    assert {message.magic for message in legacy.iterate(to_0)} == {0}
    assert [(record.offset, record.value) for record in legacy.read_message_set(to_0)] == [
        (1, b"a"),
        (2, b"b"),
        (3, b"c"),
    ]


def test_down_conversion_to_magic_1_keeps_log_append_time() -> None:
    data = conversion.down_convert(
        build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=8000), 1
    )
    assert {message.timestamp_type for message in legacy.iterate(data)} == {TimestampType.LOG_APPEND_TIME}
    assert [record.timestamp for record in legacy.read_message_set(data)] == [8000] * 3


@given(st.sampled_from(Compression), st.sampled_from(Compression))
def test_recompression_changes_nothing_but_the_codec(before: Compression, after: Compression) -> None:
    data = build_batch(
        RECORDS, compression=before, producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True
    )
    header = batch.read_header(data)
    other = conversion.recompress(data, header, after)
    changed = batch.read_header(other)
    batch.check_crc(other, changed)
    assert list(read_records(other, changed)) == RECORDS
    assert changed.compression is after
    assert changed.is_transactional
    assert (changed.producer_id, changed.producer_epoch, changed.base_sequence) == (5, 1, 7)
    assert other == build_batch(
        RECORDS, compression=after, producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True
    )


def test_a_buffer_of_all_formats_is_read() -> None:
    data = (
        legacy.build_message_set(RECORDS[:1], magic=0)
        + legacy.build_message_set(RECORDS[1:2], magic=1, compression=Compression.GZIP)
        + build_batch(RECORDS[2:])
    )
    assert list(conversion.read_any(data)) == [
        RECORDS[0]._replace(timestamp=-1, headers=()),
        RECORDS[1],
        RECORDS[2],
    ]
    assert len(list(conversion.read_any(data + data[:9], allow_partial=True))) == 3
    with pytest.raises(CorruptRecordError):
        list(conversion.read_any(data + data[:9]))
