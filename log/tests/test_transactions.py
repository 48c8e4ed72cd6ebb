"""Transactions as far as a log knows them: where the oldest open one begins, and which were aborted."""

from __future__ import annotations

from pathlib import Path

from log.tests.log_kit import START_MS, TOPIC_ID, Time, append, batch, open_directory

from odradek_log.config import LogConfig
from odradek_log.log import Log
from odradek_log.producer_state import AppendOrigin
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.control import end_txn_marker_batch

TXN_INDEX = "00000000000000000000.txnindex"


def _produce(log: Log, producer: int, sequence: int) -> None:
    log.append(batch(b"v", b"w", producer=(producer, 0, sequence), transactional=True), 0)


def _end(log: Log, producer: int, *, commit: bool) -> None:
    marker = end_txn_marker_batch(
        commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=START_MS
    )
    log.append(marker, 0, origin=AppendOrigin.COORDINATOR)


def _with_transactions(path: Path) -> Log:
    """Offsets: 7 has 0-1 and 4-5, 8 has 2-3; 7 aborts at 6, 8 commits at 7, 7 opens 8-9, rolls, aborts at 10."""
    log = open_directory(path, Time()).create_log("t", 0, TOPIC_ID, LogConfig())
    _produce(log, 7, 0)
    _produce(log, 8, 0)
    _produce(log, 7, 2)
    _end(log, 7, commit=False)
    _end(log, 8, commit=True)
    _produce(log, 7, 4)
    log.roll()
    _end(log, 7, commit=False)
    return log


FIRST, SECOND = AbortedTransaction(7, 0, 6, 2), AbortedTransaction(7, 8, 10, 11)


def test_an_aborted_transaction_is_indexed_in_the_segment_of_its_marker(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    first, second = log.segments
    assert (first.aborted(), second.aborted()) == ([FIRST], [SECOND])
    assert (tmp_path / "t-0" / TXN_INDEX).read_bytes() == bytes.fromhex(
        "00000000000000000007000000000000000000000000000000060000000000000002"
    )
    assert log.producers.first_undecided_offset is None


def test_a_reader_learns_of_the_aborted_transactions_that_touch_what_it_reads(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    assert log.aborted_transactions(0, 2) == [FIRST]
    assert log.aborted_transactions(0, 11) == [FIRST, SECOND]
    assert log.aborted_transactions(7, 8) == []
    assert log.aborted_transactions(7, 9) == [SECOND]


def test_truncation_and_recovery_write_the_index_anew(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    log.truncate_to(10)
    assert log.aborted_transactions(0, 10) == [FIRST]
    assert log.producers.first_undecided_offset == 8
    log.truncate_to(6)
    assert log.aborted_transactions(0, 6) == []
    assert log.producers.first_undecided_offset == 0


def test_a_lost_index_comes_back_with_the_batches_that_a_crash_makes_us_read(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"before")
    _produce(log, 7, 0)
    _end(log, 7, commit=False)
    expected = log.aborted_transactions(0, 100)
    assert expected == [AbortedTransaction(7, 1, 3, 4)]
    directory.abandon()
    (tmp_path / "t-0" / TXN_INDEX).unlink()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: LogConfig())
    assert directory.logs["t", 0].aborted_transactions(0, 100) == expected
    directory.close()
    assert (tmp_path / "t-0" / TXN_INDEX).stat().st_size == 34
