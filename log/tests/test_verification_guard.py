"""The verification guards of a log: a transaction begins only with the current guard of its producer."""

from __future__ import annotations

from log.tests.log_kit import START_MS

from odradek_log.append import Rejection
from odradek_log.producer_replay import update
from odradek_log.producer_state_manager import BatchMetadata, ProducerStateManager
from odradek_log.verification_guard import NOT_REQUIRED, ONGOING, VerificationGuard
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek_wire.records.batch import RecordBatchHeader, read_header
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import end_txn_marker_batch

PRODUCER = 5
HOUR_MS = 3_600_000


def header(sequence: int = 0, epoch: int = 0, *, transactional: bool = True) -> RecordBatchHeader:
    builder = BatchBuilder(
        producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    builder.append(START_MS, None, b"v")
    return read_header(builder.build())


def begin(
    producers: ProducerStateManager, sequence: int = 0, epoch: int = 0, *, adds_partition: bool = False
) -> VerificationGuard:
    found = producers.begin_verification(PRODUCER, epoch, sequence, adds_partition=adds_partition, now_ms=START_MS)
    assert isinstance(found, VerificationGuard)
    return found


def end(producers: ProducerStateManager, epoch: int, offset: int = 50) -> None:
    batch = end_txn_marker_batch(
        commit=True, coordinator_epoch=0, producer_id=PRODUCER, producer_epoch=epoch, timestamp=START_MS
    )
    marker = read_header(batch)
    assert marker.attributes & CONTROL_BIT
    assert marker.attributes & TRANSACTIONAL_BIT
    marker.base_offset = offset
    update(producers, marker, batch)


def error(verdict: Rejection | BatchMetadata | None) -> ErrorCode | None:
    assert not isinstance(verdict, BatchMetadata)
    return None if verdict is None else verdict.error


def test_a_transaction_begins_with_its_current_verification_guard() -> None:
    producers = ProducerStateManager(HOUR_MS)
    mine = begin(producers)
    stranger = VerificationGuard(0, 0, adds_partition=False, began_ms=START_MS)
    assert error(producers.check(header(), None)) is ErrorCode.INVALID_TXN_STATE
    assert error(producers.check(header(), stranger)) is ErrorCode.INVALID_TXN_STATE
    assert producers.check(header(), mine) is None
    assert producers.check(header(), NOT_REQUIRED) is None


def test_a_transactional_batch_without_a_guard_is_rejected() -> None:
    producers = ProducerStateManager(HOUR_MS)
    producers.update(header(), 10)
    assert error(producers.check(header(1), None)) is ErrorCode.INVALID_TXN_STATE
    assert producers.check(header(1)) is None


def test_a_batch_of_an_ongoing_transaction_needs_no_verification() -> None:
    producers = ProducerStateManager(HOUR_MS)
    begin(producers)
    producers.update(header(), 10)
    assert begin(producers, 1) is ONGOING
    assert producers.check(header(1), ONGOING) is None
    assert not producers.verification_guards.by_producer
    end(producers, epoch=0)
    assert error(producers.check(header(1), ONGOING)) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_a_transaction_removes_its_verification_guard() -> None:
    producers = ProducerStateManager(HOUR_MS)
    mine = begin(producers)
    end(producers, epoch=0)
    assert error(producers.check(header(), mine)) is ErrorCode.INVALID_TXN_STATE
    again = begin(producers)
    assert again is not mine
    assert error(producers.check(header(), mine)) is ErrorCode.INVALID_TXN_STATE
    assert producers.check(header(), again) is None


def test_under_version_2_a_late_marker_keeps_the_next_verification_guard() -> None:
    producers = ProducerStateManager(HOUR_MS)
    producers.update(header(0, epoch=3), 10)
    following = begin(producers, epoch=4, adds_partition=True)
    end(producers, epoch=4)
    assert producers.check(header(0, epoch=4), following) is None
    end(producers, epoch=5)
    assert error(producers.check(header(0, epoch=5), following)) is ErrorCode.INVALID_TXN_STATE


def test_an_ongoing_transaction_of_an_older_epoch_needs_verification() -> None:
    producers = ProducerStateManager(HOUR_MS)
    producers.update(header(0, epoch=3), 10)
    assert begin(producers, epoch=4)
    assert error(producers.check(header(0, epoch=4), ONGOING)) is ErrorCode.INVALID_TXN_STATE
    refused = producers.begin_verification(PRODUCER, 2, 0, adds_partition=False, now_ms=START_MS)
    assert isinstance(refused, Rejection)
    assert refused.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert error(producers.check(header(0, epoch=2), ONGOING)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_no_batch_is_appended_before_the_lowest_sequence_of_its_guard() -> None:
    producers = ProducerStateManager(HOUR_MS)
    begin(producers, sequence=4)
    mine = begin(producers, sequence=2)
    begin(producers, sequence=3)
    assert error(producers.check(header(3), mine)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(2), mine) is None
    begin(producers, sequence=7, epoch=1)
    assert producers.check(header(7, epoch=1), mine) is None


def test_under_version_2_an_unknown_producer_begins_with_sequence_0() -> None:
    for adds_partition, expected in ((True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, None)):
        producers = ProducerStateManager(HOUR_MS)
        mine = begin(producers, sequence=4, adds_partition=adds_partition)
        assert error(producers.check(header(4), mine)) is expected


def test_a_repeated_batch_is_a_duplicate_after_its_transaction() -> None:
    producers = ProducerStateManager(HOUR_MS)
    producers.update(header(0), 10)
    end(producers, epoch=0)
    assert producers.check(header(0), ONGOING) == BatchMetadata(0, 10, 0, START_MS)
    assert error(producers.check(header(1), ONGOING)) is ErrorCode.INVALID_TXN_STATE
    assert error(producers.check(header(0), None)) is ErrorCode.INVALID_TXN_STATE


def test_a_non_transactional_batch_in_an_ongoing_transaction_is_rejected() -> None:
    producers = ProducerStateManager(HOUR_MS)
    producers.update(header(0), 10)
    for _ in range(2):
        assert error(producers.check(header(1, transactional=False))) is ErrorCode.INVALID_TXN_STATE
        assert error(producers.check(header(3, transactional=False))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producers.verification_guards.begin(PRODUCER + 1, 0, 0, adds_partition=False, now_ms=START_MS)
    end(producers, epoch=0)
    assert producers.check(header(1, transactional=False)) is None


def test_a_coordinators_batch_needs_a_guard_and_no_sequence() -> None:
    producers = ProducerStateManager(HOUR_MS)
    mine = begin(producers, sequence=-1)
    assert error(producers.check_coordinator_batch(header(-1), None)) is ErrorCode.INVALID_TXN_STATE
    assert producers.check_coordinator_batch(header(-1), mine) is None
    producers.update(header(-1, epoch=1), 10)
    assert producers.check_coordinator_batch(header(-1, epoch=1), ONGOING) is None
    assert error(producers.check_coordinator_batch(header(-1), None)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unused_verification_guard_expires_like_a_producer() -> None:
    producers = ProducerStateManager(HOUR_MS)
    mine = begin(producers)
    producers.remove_expired(START_MS + HOUR_MS - 1)
    assert producers.check(header(), mine) is None
    producers.remove_expired(START_MS + HOUR_MS)
    assert error(producers.check(header(), mine)) is ErrorCode.INVALID_TXN_STATE
