"""Headers of batches: fields, bounds, CRC and patches in place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records import batch
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.batch import RecordBatchHeader
from odradek_wire.records.builder import BatchBuilder, build_batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import CorruptRecordError, InvalidRecordError

RECORDS = [Record(5, 1000, b"k", b"v"), Record(6, 1007, None, b"w"), Record(7, 1003, b"x", None)]


def a_batch() -> bytearray:
    return build_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=40, partition_leader_epoch=3)


def test_a_header_has_the_fields_of_its_bytes() -> None:
    data = bytes(3) + a_batch()
    header = batch.read_header(data, 3)
    assert header == RecordBatchHeader(
        (5, len(data) - 3 - 12, 3, 2, crc32c(data[3 + 21 :]), 0, 2, 1000, 1007, 9, 2, 40, 3), position=3
    )
    assert (header.last_offset, header.next_offset, header.size_in_bytes, header.end) == (
        7,
        8,
        len(data) - 3,
        len(data),
    )
    assert header.last_sequence == 42
    assert repr(header).startswith("RecordBatchHeader(base_offset=5, batch_length=")


def test_attribute_bits_have_names() -> None:
    builder = BatchBuilder(
        compression=Compression.LZ4,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=77,
        is_transactional=True,
        is_control=True,
        delete_horizon_ms=55,
    )
    builder.append(50, None, None)
    header = batch.read_header(builder.build())
    assert header.attributes == 0x3 | 0x8 | 0x10 | 0x20 | 0x40
    assert header.compression is Compression.LZ4
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.is_transactional, header.is_control, header.is_compressed) == (True, True, True)
    assert (header.delete_horizon_ms, header.max_timestamp) == (55, 77)


def test_a_plain_batch_has_no_attribute_bits() -> None:
    header = batch.read_header(build_batch(RECORDS))
    assert (header.is_transactional, header.is_control, header.is_compressed) == (False, False, False)
    assert header.compression is Compression.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.delete_horizon_ms, header.last_sequence) == (None, -1)


def test_sequences_wrap_to_zero() -> None:
    header = batch.read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0x7FFF_FFFE))
    assert header.last_sequence == 0


@pytest.mark.parametrize("cut", [0, 1, 11, 60])
def test_too_few_bytes_for_a_header_are_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        batch.read_header(a_batch()[:cut])
    with pytest.raises(CorruptRecordError):
        batch.peek_header(a_batch()[:cut])


def test_peek_header_reads_the_header_of_a_batch_that_is_cut_off() -> None:
    data = a_batch()
    with pytest.raises(CorruptRecordError):
        batch.read_header(data[:-1])
    assert batch.peek_header(data[:61]) == batch.read_header(data)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48])
def test_a_length_below_the_headers_own_is_corrupt(length: int) -> None:
    data = a_batch()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    for read in (batch.read_header, batch.peek_header):
        with pytest.raises(CorruptRecordError):
            read(data)


def test_another_magic_is_corrupt() -> None:
    data = a_batch()
    data[16] = 3
    with pytest.raises(CorruptRecordError):
        batch.read_header(data)
    assert batch.magic_at(data) == 3
    data[16] = 0xFF
    assert batch.magic_at(data) == -1


def test_batches_are_found_one_after_the_other() -> None:
    first, second = a_batch(), build_batch(RECORDS[:1])
    headers = list(batch.iterate(memoryview(first + second)))
    assert [(header.position, header.count) for header in headers] == [(0, 3), (len(first), 1)]


@pytest.mark.parametrize("kept", [5, 12, 40, 61, 70])
def test_a_partial_last_batch_ends_an_iteration_that_allows_it(kept: int) -> None:
    data = a_batch() + a_batch()[:kept]
    assert [header.position for header in batch.iterate(data, allow_partial=True)] == [0]
    with pytest.raises(CorruptRecordError):
        list(batch.iterate(data))


def test_any_flipped_bit_after_the_crc_is_found() -> None:
    data = a_batch()
    header = batch.read_header(data)
    for position in range(21, len(data)):
        data[position] ^= 0x10
        assert not batch.is_crc_valid(data, header)
        data[position] ^= 0x10
    assert batch.validate(data) == header


@pytest.mark.parametrize(("position", "value"), [(57, 0), (57, -1), (57, 4), (23, 1), (23, -1)])
def test_a_count_that_contradicts_the_offsets_is_invalid(position: int, value: int) -> None:
    data = a_batch()
    data[position : position + 4] = value.to_bytes(4, "big", signed=True)
    batch.rewrite_crc(data, batch.read_header(data))
    with pytest.raises(InvalidRecordError):
        batch.validate(data)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_invalid(codec: int) -> None:
    data = a_batch()
    data[22] |= codec
    batch.rewrite_crc(data, batch.read_header(data))
    with pytest.raises(InvalidRecordError):
        batch.validate(data)
    with pytest.raises(InvalidRecordError):
        _ = batch.read_header(data).compression


def test_a_new_offset_and_leader_epoch_keep_the_crc_valid() -> None:
    data = bytearray(4) + a_batch()
    view = memoryview(data)
    batch.set_offset_and_leader_epoch(view, batch.read_header(view, 4), 1 << 40, 17)
    header = batch.validate(data, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 17)
    assert [record.offset for record in read_records(data, header)] == [1 << 40, (1 << 40) + 1, (1 << 40) + 2]
    batch.set_base_offset(view, 4, 8)
    header = batch.validate(data, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (8, 17)


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    data = a_batch()
    batch.set_max_timestamp(data, batch.read_header(data), TimestampType.LOG_APPEND_TIME, 5000)
    header = batch.validate(data)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5000)
    assert [record.timestamp for record in read_records(data, header)] == [5000, 5000, 5000]
    batch.set_max_timestamp(data, header, TimestampType.CREATE_TIME, 1007)
    assert data == a_batch()


def test_setting_the_same_max_timestamp_writes_nothing() -> None:
    data = bytes(a_batch())
    header = batch.read_header(data)
    # bytes cannot be written, so this would raise
    batch.set_max_timestamp(data, header, TimestampType.CREATE_TIME, 1007)  # type: ignore[arg-type]


@given(st.binary(max_size=400_000))
def test_crc32c_is_the_same_for_every_kind_of_buffer(data: bytes) -> None:
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(bytearray(data)))


def test_crc32c_of_a_large_view_equals_that_of_its_bytes() -> None:
    data = bytes(range(256)) * 4000
    assert crc32c(memoryview(data)) == crc32c(data)
    assert crc32c(b"123456789") == 0xE306_9283


def test_the_size_of_an_entry_is_known_from_its_first_twelve_bytes() -> None:
    data = a_batch()
    assert batch.entry_size_at(data[:12]) == len(data)
    assert batch.entry_size_at(data[:11]) is None
    with pytest.raises(CorruptRecordError):
        batch.entry_size_at(bytes(12))
