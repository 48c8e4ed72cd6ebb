"""Removing records from a batch: partial records agree with decoded ones, and retained records are unchanged."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records import batch, record_filter
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import BatchBuilder, build_batch
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records, records_data
from odradek_wire.records.record_errors import InvalidRecordError

_TEXT = st.none() | st.binary(max_size=200)
_RECORDS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(-1, 1 << 44), _TEXT, _TEXT, st.sampled_from([(), (("h", b"x"),)])),
    min_size=1,
    max_size=12,
)


def _records(
    drawn: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
) -> list[Record]:
    offset, records = 100, []
    for step, timestamp, key, value, headers in drawn:
        offset += step
        records.append(Record(offset, timestamp, key, value, headers))
    return records


@given(_RECORDS, st.sampled_from(list(Compression)), st.data())
def test_retained_records_and_the_offsets_of_the_batch_are_unchanged(
    drawn: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Compression,
    data: st.DataObject,
) -> None:
    records = _records(drawn)
    before = build_batch(records, base_offset=100, compression=codec, producer_id=7, producer_epoch=1, base_sequence=4)
    header = batch.read_header(before)
    body = records_data(before, header)
    found = record_filter.read_partial(body, header.count)
    assert found.keys == [record.key for record in records]
    assert found.keyless == [at for at, record in enumerate(records) if record.key is None]
    assert found.tombstones == [at for at, record in enumerate(records) if record.value is None]
    assert [100 + delta for delta in found.offset_deltas] == [record.offset for record in records]
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    horizon_ms = data.draw(st.none() | st.integers(0, 1 << 44))
    after = record_filter.retain(header, body, found, kept, delete_horizon_ms=horizon_ms)
    left = batch.read_header(after)
    batch.check_crc(after, left)
    assert list(read_records(after, left)) == [records[at] for at in kept]
    assert left.delete_horizon_ms == horizon_ms
    assert left.max_timestamp == max(records[at].timestamp for at in kept)
    same = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "compression")
    assert [getattr(left, name) for name in same] == [getattr(header, name) for name in same]
    steps, in_slices = _run(record_filter.retain_in_slices(header, body, found, kept, 2, delete_horizon_ms=horizon_ms))
    assert in_slices == after
    assert steps == [False] * ((len(kept) + 1) // 2) + [True] * header.is_compressed


def _run(work: Generator[bool, None, bytearray]) -> tuple[list[bool], bytearray]:
    """Return the values that a generator yields, and the value that it returns."""
    steps: list[bool] = []
    while True:
        try:
            steps.append(next(work))
        except StopIteration as finished:
            return steps, finished.value


def test_an_existing_delete_horizon_stays() -> None:
    builder = BatchBuilder(delete_horizon_ms=77)
    for at in range(3):
        builder.append(1000 + at, b"k", None)
    before = builder.build()
    header = batch.read_header(before)
    body = records_data(before, header)
    after = record_filter.retain(header, body, record_filter.read_partial(body, 3), [1])
    assert batch.read_header(after).delete_horizon_ms == 77
    assert [record.timestamp for record in read_records(after, batch.read_header(after))] == [1001]


def test_a_batch_with_log_append_time_keeps_its_max_timestamp() -> None:
    records = [Record(at, 5 + at, b"k", b"v") for at in range(3)]
    before = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=900)
    header = batch.read_header(before)
    body = records_data(before, header)
    after = record_filter.retain(header, body, record_filter.read_partial(body, 3), [0])
    assert [record.timestamp for record in read_records(after, batch.read_header(after))] == [900]


def test_an_empty_batch_keeps_offsets_producer_and_max_timestamp() -> None:
    builder = BatchBuilder(
        base_offset=40,
        compression=Compression.GZIP,
        producer_id=9,
        producer_epoch=2,
        base_sequence=11,
        is_transactional=True,
        partition_leader_epoch=6,
        delete_horizon_ms=77,
    )
    for at in range(3):
        builder.append(1000 + at, b"k", None)
    before = batch.read_header(builder.build())
    data = record_filter.empty_batch(before)
    after = batch.read_header(data)
    batch.check_crc(data, after)
    assert len(data) == batch.HEADER_SIZE
    assert (after.base_offset, after.last_offset, after.last_sequence, after.count) == (40, 42, 13, 0)
    assert (after.producer_id, after.producer_epoch, after.partition_leader_epoch) == (9, 2, 6)
    assert (after.is_transactional, after.is_compressed, after.delete_horizon_ms) == (True, False, None)
    assert (after.base_timestamp, after.max_timestamp) == (-1, 1002)


def test_malformed_records_are_rejected() -> None:
    before = build_batch([Record(at, 5, b"key", b"value") for at in range(3)])
    body = records_data(before, batch.read_header(before))
    for wrong, count in ((body[:-1], 3), (body, 2), (body, 4), (body + b"\0", 3), (b"\x01" + body[1:], 3)):
        with pytest.raises(InvalidRecordError):
            record_filter.read_partial(wrong, count)
    longer_key = bytearray(body)
    longer_key[4] = 126
    with pytest.raises(InvalidRecordError, match="passes the end"):
        record_filter.read_partial(bytes(longer_key), 3)
