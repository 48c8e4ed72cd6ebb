"""The first unstable offset: that of the oldest transaction that is ongoing, or whose marker is not replicated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from log.tests.log_kit import START_MS, TOPIC_ID, Time, append, batch, open_directory

from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import PRODUCER_EXPIRATION_MS
from odradek_log.producer_state_manager import AppendOrigin
from odradek_log.unstable_transactions import UnstableTransactions
from odradek_wire.records.control import end_txn_marker_batch


def _produce(log: Log, producer: int, sequence: int = 0, *, count: int = 2) -> None:
    log.append(batch(*[b"v"] * count, producer=(producer, 0, sequence), transactional=True), 0)


def _end(log: Log, producer: int, *, commit: bool = True) -> None:
    marker = end_txn_marker_batch(
        commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=START_MS
    )
    log.append(marker, 0, origin=AppendOrigin.COORDINATOR)


def _log(path: Path, config: LogConfig | None = None) -> Log:
    return open_directory(path, Time()).create_log("t", 0, TOPIC_ID, config or LogConfig())


def test_without_a_transaction_there_is_no_first_unstable_offset(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"a")
    log.append(batch(b"b", producer=(5, 0, 0)), 0)
    assert log.first_unstable_offset(2) is None
    _end(log, 5)
    assert log.first_unstable_offset(0) is None


def test_the_oldest_ongoing_transaction_has_the_first_unstable_offset(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"a")
    _produce(log, 5)
    _produce(log, 6)
    _produce(log, 5, 2)
    assert log.first_unstable_offset(7) == 1
    _end(log, 5)
    assert log.first_unstable_offset(8) == 3
    _end(log, 6, commit=False)
    assert log.first_unstable_offset(9) is None


def test_an_ended_transaction_is_unstable_until_its_marker_is_replicated(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _produce(log, 5)
    _end(log, 5)
    _produce(log, 6)
    for high_watermark in (0, 2):
        assert log.first_unstable_offset(high_watermark) == 0
    assert log.first_unstable_offset(3) == 3


def test_the_oldest_of_several_unreplicated_transactions_counts(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for producer in (5, 6, 7):
        _produce(log, producer)
    _end(log, 6)
    _end(log, 7)
    _end(log, 5)
    assert [log.first_unstable_offset(at) for at in (6, 7, 8, 9)] == [0, 0, 0, None]


def test_the_first_unstable_offset_is_not_below_the_log_start_offset(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _produce(log, 5, count=4)
    log.advance_log_start_offset(2)
    assert log.first_unstable_offset(4) == 2
    _end(log, 5)
    assert log.first_unstable_offset(4) == 2
    assert log.first_unstable_offset(5) is None


def test_truncation_of_its_marker_makes_a_transaction_ongoing_again(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _produce(log, 5)
    log.roll()
    _end(log, 5, commit=False)
    assert log.first_unstable_offset(3) is None
    log.truncate_to(2)
    assert log.first_unstable_offset(2) == 0
    log.truncate_fully_and_start_at(9)
    assert log.first_unstable_offset(9) is None


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_restores_ongoing_and_unreplicated_transactions(tmp_path: Path, *, crash: bool) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    _produce(log, 5)
    _produce(log, 6)
    log.roll()
    _end(log, 5)
    directory.close_without_writing() if crash else directory.close()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: LogConfig())
    log = directory.logs["t", 0]
    # As in Kafka, a snapshot has ongoing transactions only; recovery from the batches finds unreplicated ones, too.
    assert log.first_unstable_offset(4) == (0 if crash else 2)
    assert log.first_unstable_offset(5) == 2
    directory.close()


def test_a_producer_expires_only_without_an_ongoing_transaction(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _produce(log, 5)
    _produce(log, 6)
    _end(log, 6)
    log.producers.remove_expired(START_MS + PRODUCER_EXPIRATION_MS)
    assert [entry.producer_id for entry in log.producers] == [5]
    assert log.first_unstable_offset(5) == 0


def test_leader_and_follower_have_the_same_first_unstable_offset(tmp_path: Path) -> None:
    leader, follower = _log(tmp_path / "leader"), _log(tmp_path / "follower", LogConfig(segment_bytes=400))
    chance = random.Random(3)
    sequences = {5: 0, 6: 0, 7: 0}
    for _ in range(60):
        producer = chance.choice(list(sequences))
        if chance.random() < 0.6:
            _produce(leader, producer, sequences[producer])
            sequences[producer] += 2
        else:
            _end(leader, producer, commit=chance.random() < 0.5)
        piece = leader.read(follower.log_end_offset, 1 << 20)
        assert piece is not None
        follower.append_as_follower(piece.tobytes())
        end = leader.log_end_offset
        assert follower.first_unstable_offset(end) == leader.first_unstable_offset(end)
    assert follower.aborted_transactions(0, end) == leader.aborted_transactions(0, end) != []
    assert len(follower.segments) > 1


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_gives_the_first_unstable_offset(seed: int) -> None:
    chance = random.Random(seed)
    transactions = UnstableTransactions()
    ongoing: list[int] = []
    ended: list[tuple[int, int]] = []
    end = high_watermark = 0
    for _ in range(300):
        match chance.randrange(3):
            case 0:
                transactions.begin(end)
                ongoing.append(end)
                end += chance.randint(1, 3)
            case 1 if ongoing:
                first = ongoing.pop(chance.randrange(len(ongoing)))
                transactions.complete(first, end)
                ended.append((first, end))
                end += 1
            case _:
                high_watermark = chance.randint(high_watermark, end)
                if chance.random() < 0.3:
                    transactions.on_high_watermark_updated(high_watermark)
        unstable = ongoing + [first for first, marker in ended if marker >= high_watermark]
        assert transactions.first_unstable_offset(high_watermark) == min(unstable, default=None)
        assert transactions.has_any == bool(unstable)
        assert transactions.first_ongoing_offset == min(ongoing, default=None)
    assert len(transactions) <= len(unstable)
