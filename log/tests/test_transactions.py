"""Transactions in a log: the first offset of the oldest ongoing one, and the index of the aborted ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from log.tests.log_kit import START_MS, TOPIC_ID, Time, append, batch, open_directory

from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import CorruptLogError
from odradek_log.producer_state_manager import AppendOrigin
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.batch import iterate, read_header
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
    """Return a log: producer 7 writes 0-1 and 4-5, producer 8 writes 2-3; 7 aborts at 6, 8 commits at 7; 7 writes 8-9,
    the log rolls, and 7 aborts at 10."""
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
    assert (first.aborted_transactions(), second.aborted_transactions()) == ([FIRST], [SECOND])
    assert (tmp_path / "t-0" / TXN_INDEX).read_bytes() == bytes.fromhex(
        "00000000000000000007000000000000000000000000000000060000000000000002"
    )
    assert log.producers.transactions.first_ongoing_offset is None


def test_aborted_transactions_are_those_in_the_range_that_is_read(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    assert log.aborted_transactions(0, 2) == [FIRST]
    assert log.aborted_transactions(0, 11) == [FIRST, SECOND]
    assert log.aborted_transactions(7, 8) == []
    assert log.aborted_transactions(7, 9) == [SECOND]


def test_truncation_removes_entries_of_the_transaction_index(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    log.truncate_to(10)
    assert log.aborted_transactions(0, 10) == [FIRST]
    assert log.producers.transactions.first_ongoing_offset == 8
    log.truncate_to(6)
    assert log.aborted_transactions(0, 6) == []
    assert log.producers.transactions.first_ongoing_offset == 0


def test_recovery_rebuilds_a_lost_transaction_index(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"before")
    _produce(log, 7, 0)
    _end(log, 7, commit=False)
    expected = log.aborted_transactions(0, 100)
    assert expected == [AbortedTransaction(7, 1, 3, 4)]
    directory.close_without_writing()
    (tmp_path / "t-0" / TXN_INDEX).unlink()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: LogConfig())
    assert directory.logs["t", 0].aborted_transactions(0, 100) == expected
    directory.close()
    assert (tmp_path / "t-0" / TXN_INDEX).stat().st_size == 34


def _reopened(path: Path, time: Time, config: LogConfig | None = None) -> Log:
    directory = open_directory(path, time)
    directory.load(lambda _: config or LogConfig())
    assert directory.failed == {}
    return directory.logs["t", 0]


def test_a_torn_transaction_index_is_rebuilt_at_the_start(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    for sequence in (0, 2):
        _produce(log, 7, sequence)
        _end(log, 7, commit=False)
    directory.close_without_writing()
    path = tmp_path / "t-0" / TXN_INDEX
    path.write_bytes(path.read_bytes()[:50])
    log = _reopened(tmp_path, time)
    _produce(log, 7, 4)
    _end(log, 7, commit=False)
    ends = [(0, 2), (3, 5), (6, 8)]
    assert [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 9)] == ends
    assert path.stat().st_size == 3 * 34


def test_recovery_reads_all_unflushed_batches_despite_later_snapshots(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    _produce(log, 7, 0)
    _end(log, 7, commit=False)
    log.roll()
    append(log, b"v")
    directory.close_without_writing()
    assert (tmp_path / "t-0" / "00000000000000000003.snapshot").exists()
    (tmp_path / "t-0" / TXN_INDEX).write_bytes(b"")
    assert _reopened(tmp_path, time).aborted_transactions(0, 4) == [AbortedTransaction(7, 0, 2, 3)]


def test_a_start_after_a_clean_shutdown_trusts_the_transaction_index(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    _produce(log := directory.create_log("t", 0, TOPIC_ID, LogConfig()), 7, 0)
    _end(log, 7, commit=False)
    directory.close()
    (tmp_path / "t-0" / TXN_INDEX).unlink()
    assert _reopened(tmp_path, time).aborted_transactions(0, 3) == []


def test_a_snapshot_before_the_log_start_offset_is_ignored(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    _produce(log, 7, 0)
    log.roll()
    _produce(log, 7, 2)
    _end(log, 7, commit=True)
    append(log, b"last")
    log.advance_log_start_offset(5)
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.close_without_writing()
    log = _reopened(tmp_path, time)
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)
    # In the snapshot the transaction is ongoing, and the next sequence is 2.
    assert log.first_unstable_offset(6) is None
    assert log.producers.check(read_header(batch(b"v", producer=(7, 0, 4)))) is None


def test_aborted_transactions_reach_to_the_next_indexed_batch(tmp_path: Path) -> None:
    log = open_directory(tmp_path, Time()).create_log("t", 0, TOPIC_ID, LogConfig(index_interval_bytes=300))
    for at in range(8):
        _produce(log, 7, 2 * at)
        _end(log, 7, commit=at % 2 == 0)
    log.roll()
    _produce(log, 8, 0)
    _end(log, 8, commit=False)
    first = log.segments.first
    aborted = [AbortedTransaction(7, 3 * at, 3 * at + 2, 3 * at + 3) for at in (1, 3, 5, 7)]
    assert first.aborted_transactions() == aborted
    for offset in (0, 4, 12, 23):
        for size in (1, 200, 1 << 20):
            piece = log.read(offset, size)
            assert piece is not None
            read = [header.next_offset for header in iterate(piece.tobytes(), allow_partial=True)]
            end = read[-1] if read else offset + 1
            found = log.aborted_transactions_of_slice(offset, piece)
            assert [each for each in found if each.first_offset < end] == log.aborted_transactions(offset, end)
            positions = first.offset_index.positions
            indexed = [at for at, position in enumerate(positions) if position >= piece.position + piece.size]
            bound = first.offset_index.offsets[indexed[0]] if indexed else 24
            assert found == log.aborted_transactions(offset, bound)
    last = log.read(24, 1 << 20)
    assert last is not None
    assert log.aborted_transactions_of_slice(24, last) == [AbortedTransaction(8, 24, 26, 27)]


def test_an_unloaded_transaction_index_is_read_again(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    log.segments.first.unload_indexes()
    assert log.aborted_transactions(0, 11) == [FIRST, SECOND]


def test_a_transaction_index_of_unknown_version_takes_the_log_offline(tmp_path: Path) -> None:
    log = _with_transactions(tmp_path)
    log.segments.first.unload_indexes()
    (tmp_path / "t-0" / TXN_INDEX).write_bytes(b"\0\1" + bytes(32))
    with pytest.raises(CorruptLogError, match="has version 1, expected 0"):
        log.aborted_transactions(0, 11)
    assert log.offline_cause is not None


def test_retention_deletes_the_transaction_indexes_of_its_segments(tmp_path: Path) -> None:
    time = Time()
    config = LogConfig(retention_ms=1000)
    log = open_directory(tmp_path, time).create_log("t", 0, TOPIC_ID, config)
    _produce(log, 7, 0)
    _end(log, 7, commit=False)
    _produce(log, 8, 0)
    log.roll()
    log.append(batch(b"late", timestamp=START_MS + 5000), 0)
    _end(log, 8, commit=False)
    time.advance(5000)
    assert log.delete_old_segments(log.log_end_offset) == 1
    assert log.log_start_offset == 5
    assert log.aborted_transactions(5, 7) == [AbortedTransaction(8, 3, 6, 7)]
    time.advance(config.file_delete_delay_ms)
    assert sorted(path.name for path in (tmp_path / "t-0").glob("*.txnindex*")) == ["00000000000000000005.txnindex"]
