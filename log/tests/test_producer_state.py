"""Sequences, epochs, duplicates and expiry of a partition's producers, and the bytes of their snapshot."""

from __future__ import annotations

import pytest
from log.tests.log_kit import START_MS, batch

from odradek_log.append import Rejection
from odradek_log.log_errors import CorruptLogError
from odradek_log.producer_state_manager import (
    BatchMetadata,
    ProducerStateEntry,
    ProducerStateManager,
    TransactionMarker,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.records.batch import RecordBatchHeader, read_header

_DAY_MS = 24 * 60 * 60 * 1000


def _header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 5, open_txn: bool = False
) -> RecordBatchHeader:
    return read_header(batch(*[b"v"] * count, producer=(producer, epoch, sequence), transactional=open_txn))


def _producers(*headers: RecordBatchHeader) -> ProducerStateManager:
    producers = ProducerStateManager(_DAY_MS)
    offset = 0
    for header in headers:
        producers.update(header, offset)
        offset += header.count
    return producers


def _error(verdict: object) -> ErrorCode:
    assert isinstance(verdict, Rejection)
    return verdict.error


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert _producers().check(_header(17)) is None


def test_the_next_sequence_is_accepted_and_a_gap_is_rejected() -> None:
    producers = _producers(_header(0, 3))
    assert producers.check(_header(3)) is None
    verdict = producers.check(_header(4))
    assert verdict == Rejection(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "Out of order sequence number for producer 5: 4 (incoming sequence number), 2 (current end sequence number)",
    )


def test_the_last_five_batches_are_duplicates_and_older_ones_out_of_order() -> None:
    producers = _producers(*(_header(2 * at, 2) for at in range(7)))
    for at in range(2, 7):
        assert producers.check(_header(2 * at, 2)) == BatchMetadata(2 * at + 1, 2 * at + 1, 1, START_MS)
    assert _error(producers.check(_header(2, 2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_sequence_of_another_length_is_out_of_order() -> None:
    assert _error(_producers(_header(0, 3)).check(_header(0, 2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    producers = _producers(_header(0x7FFF_FFFE, 2))
    assert producers.check(_header(0)) is None
    wrapped = _producers(_header(0x7FFF_FFFF, 2))
    assert wrapped.check(_header(0x7FFF_FFFF, 2)) == BatchMetadata(0, 1, 1, START_MS)
    assert wrapped.check(_header(1)) is None


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    producers = _producers(_header(0, epoch=3))
    assert _error(producers.check(_header(1, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert _error(producers.check(_header(1, epoch=4))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(_header(0, epoch=4)) is None
    producers.update(_header(0, epoch=4), 10)
    entry = producers.get(5)
    assert entry is not None
    assert (entry.producer_epoch, entry.batches) == (4, [BatchMetadata(0, 10, 0, START_MS)])


def _marker(epoch: int, *, coordinator: int = 0, version: int = 0) -> TransactionMarker:
    return TransactionMarker(5, epoch, coordinator, commit=True, transaction_version=version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_an_older_epoch_is_rejected(version: int) -> None:
    producers = _producers(_header(0, epoch=3, open_txn=True))
    assert _error(producers.check_marker(_marker(2, version=version))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check_marker(_marker(4, version=version)) is None
    assert _producers().check_marker(_marker(0, version=version)) is None


def test_under_version_2_a_marker_of_the_current_epoch_is_late() -> None:
    open_one = _producers(_header(0, epoch=3, open_txn=True))
    assert open_one.check_marker(_marker(3, version=1)) is None
    assert _error(open_one.check_marker(_marker(3, version=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    open_one.end_transaction(5, 4, 0, START_MS, 1)
    assert open_one.check_marker(_marker(4, version=2)) is None
    last = _producers(_header(0, epoch=0x7FFF, open_txn=True))
    assert last.check_marker(_marker(0x7FFF, version=2)) is None


def test_a_marker_of_an_older_coordinator_is_rejected() -> None:
    producers = _producers(_header(0, open_txn=True))
    producers.end_transaction(5, 0, 2, START_MS, 1)
    assert _error(producers.check_marker(_marker(0, coordinator=1))) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.check_marker(_marker(0, coordinator=2)) is None
    assert _error(producers.check_marker(_marker(-1, coordinator=1))) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_without_an_ongoing_transaction_expire() -> None:
    producers = _producers(_header(0), _header(0, producer=6, open_txn=True))
    producers.remove_expired(START_MS + _DAY_MS - 1)
    assert [entry.producer_id for entry in producers] == [5, 6]
    producers.remove_expired(START_MS + _DAY_MS)
    assert [entry.producer_id for entry in producers] == [6]


def test_a_marker_ends_the_transaction_and_returns_its_first_offset() -> None:
    producers = _producers(_header(0), _header(0, producer=6, open_txn=True), _header(1, producer=6, open_txn=True))
    assert producers.transactions.first_ongoing_offset == 1
    assert producers.end_transaction(6, 1, 9, START_MS + 5, 3) == 1
    entry = producers.get(6)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp) == (1, 9, START_MS + 5)
    assert (entry.batches, producers.transactions.first_ongoing_offset) == ([], None)


def test_a_snapshot_keeps_the_newest_batch_of_each_producer() -> None:
    producers = _producers(_header(0, 2), _header(2, 3), _header(0, producer=6, open_txn=True))
    producers.end_transaction(7, 2, 4, START_MS, 6)
    data = producers.encode()
    assert len(data) == 2 + 4 + 4 + 3 * 46
    loaded = ProducerStateManager(_DAY_MS)
    loaded.load(data, "a.snapshot", START_MS)
    first, second, third = loaded
    assert first.batches == [BatchMetadata(4, 4, 2, START_MS)]
    assert second.current_txn_first_offset == 5
    assert (third.producer_epoch, third.coordinator_epoch, third.batches) == (2, 4, [])
    assert loaded.encode() == data


def test_expired_producers_of_a_snapshot_are_not_loaded() -> None:
    loaded = ProducerStateManager(_DAY_MS)
    loaded.load(_producers(_header(0)).encode(), "a.snapshot", START_MS + _DAY_MS)
    assert list(loaded) == []


@pytest.mark.parametrize("position", [0, 3, 7, 20])
def test_a_damaged_snapshot_is_rejected(position: int) -> None:
    data = bytearray(_producers(_header(0)).encode())
    data[position] ^= 1
    with pytest.raises(CorruptLogError):
        ProducerStateManager(_DAY_MS).load(bytes(data), "a.snapshot", START_MS)
    with pytest.raises(CorruptLogError):
        ProducerStateManager(_DAY_MS).load(bytes(data[:position]), "a.snapshot", START_MS)


def test_a_snapshot_has_kafkas_format() -> None:
    # Written by Apache Kafka 4.3.0 for one idempotent producer; in test_peers Kafka reads a snapshot of ours.
    producers = ProducerStateManager(_DAY_MS)
    entry = ProducerStateEntry(1, 2)
    entry.batches = [BatchMetadata(3, 4, 1, 5)]
    entry.last_timestamp = 5
    producers._entries[1] = entry
    assert producers.encode()[6:].hex() == (
        "00000001" "0000000000000001" "0002" "00000003" "0000000000000004" "00000001"
        "0000000000000005" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
