"""kafka-python, aiokafka and kio read the records that we write, and we read theirs."""

import datetime
import io
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioHeader
from kio.records.writers import write_new_batch

from odradek_wire.records import batch, legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
CONTENT = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, *, old: bool = False) -> list[Record]:
    first = draw(st.integers(0, 1 << 40))
    return [
        Record(
            first + index,
            draw(st.integers(0, 1 << 50)),
            draw(CONTENT),
            draw(CONTENT),
            () if old else draw(HEADERS),
        )
        for index in range(draw(st.integers(1, 12)))
    ]


def at_zero(records: list[Record]) -> list[Record]:
    """Return the records with the offsets of a producer."""
    return [record._replace(offset=index) for index, record in enumerate(records)]


def read_by(reader: Callable[[bytes], object], data: bytes) -> list[Record]:
    """Decode the bytes with a client library that has kafka-python's interface."""
    found = []
    memory = reader(data)
    while memory.has_next():  # type: ignore[attr-defined]
        entry = memory.next_batch()  # type: ignore[attr-defined]
        assert entry.validate_crc()
        for record in entry:
            found.append(
                Record(
                    record.offset,
                    -1 if record.timestamp is None else record.timestamp,
                    None if record.key is None else bytes(record.key),
                    None if record.value is None else bytes(record.value),
                    tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
                )
            )
    return found


@pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords], ids=["kafka-python", "aiokafka"])
@settings(max_examples=60)
@given(record_lists(), st.sampled_from(Compression))
def test_client_libraries_read_our_batches(
    reader: Callable[[bytes], object], records: list[Record], codec: Compression
) -> None:
    data = build_batch(records, compression=codec, producer_id=3, producer_epoch=1, base_sequence=9)
    assert read_by(reader, bytes(data)) == records


@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder], ids=["kafka-python", "aiokafka"])
@settings(max_examples=60)
@given(record_lists(), st.sampled_from(Compression))
def test_batches_of_client_libraries_are_read(
    builder: Callable[..., KafkaPythonBuilder], records: list[Record], codec: Compression
) -> None:
    writer = builder(
        2, int(codec), is_transactional=1, producer_id=3, producer_epoch=1, base_sequence=9, batch_size=1 << 30
    )
    for index, record in enumerate(records):
        writer.append(index, record.timestamp, record.key, record.value, list(record.headers))
    data = bytes(writer.build())
    header = batch.validate(data)
    assert list(read_records(data, header)) == at_zero(records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (3, 1, 9, True)


@pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords], ids=["kafka-python", "aiokafka"])
@settings(max_examples=60)
@given(record_lists(old=True), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]))
def test_client_libraries_read_our_message_sets(
    reader: Callable[[bytes], object], records: list[Record], codec: Compression, magic: int
) -> None:
    if (reader, codec, magic) == (AiokafkaRecords, Compression.LZ4, 0):
        return  # it refuses to read that
    data = legacy.build_message_set(records, magic=magic, compression=codec)
    if magic == 0:
        records = [record._replace(timestamp=-1) for record in records]
    assert read_by(reader, bytes(data)) == records


@pytest.mark.parametrize("builder", [KafkaPythonLegacyBuilder, AiokafkaLegacyBuilder], ids=["kafka-python", "aiokafka"])
@settings(max_examples=60)
@given(record_lists(old=True), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]))
def test_message_sets_of_client_libraries_are_read(
    builder: Callable[..., KafkaPythonLegacyBuilder], records: list[Record], codec: Compression, magic: int
) -> None:
    if (builder, codec, magic) == (AiokafkaLegacyBuilder, Compression.LZ4, 0):
        return  # it refuses to write that
    writer = builder(magic, int(codec), 1 << 30)
    for index, record in enumerate(records):
        writer.append(index, record.timestamp if magic else None, record.key, record.value)
    data = bytes(writer.build())
    if magic == 0:
        records = [record._replace(timestamp=-1) for record in records]
    assert list(legacy.read_message_set(data)) == at_zero(records)


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_record(record: Record) -> KioRecord:
    return KioRecord(
        attributes=0,
        timestamp=EPOCH + datetime.timedelta(milliseconds=record.timestamp),
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(KioHeader(key=name.encode(), value=value) for name, value in record.headers),
    )


@st.composite
def kio_lists(draw: st.DrawFn) -> list[Record]:
    # kio's reader cuts timestamps down to whole seconds.
    return [record._replace(timestamp=record.timestamp % (1 << 32) * 1000) for record in draw(record_lists())]


@settings(max_examples=60)
@given(kio_lists())
def test_kio_reads_our_batches(records: list[Record]) -> None:
    data = bytes(build_batch(records, producer_id=3, producer_epoch=1, base_sequence=9))
    header = batch.read_header(data)
    found, size = read_batch(data, 0)
    assert size == len(data)
    assert found.records == tuple(map(kio_record, records))
    assert (found.base_offset, found.batch_length, found.crc, found.last_offset_delta, found.max_timestamp) == (
        header.base_offset,
        header.batch_length,
        header.crc,
        header.last_offset_delta,
        header.max_timestamp,
    )


@settings(max_examples=60)
@given(kio_lists())
def test_batches_of_kio_are_read(records: list[Record]) -> None:
    records = at_zero(records)
    output = io.BytesIO()
    write_new_batch(
        output,
        NewRecordBatch(
            producer_id=3,
            producer_epoch=1,
            base_sequence=9,
            records=tuple(map(kio_record, records)),
            attributes=0,
        ),
    )
    data = output.getvalue()
    header = batch.validate(data)
    assert list(read_records(data, header)) == records
    assert header.timestamp_type is TimestampType.CREATE_TIME
