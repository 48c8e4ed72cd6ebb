"""Transactions in one partition of the group coordinator on a real log: pending offsets and markers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.tests.groups.coordinator_alone import CoordinatorAlone, committed, offset

from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_log.append import AppendInfo, Rejection
from odradek_log.producer_state_manager import TransactionMarker
from odradek_log.verification_guard import NOT_REQUIRED
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit_value import OffsetCommitValue

PRODUCER = Producer(7, 3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[CoordinatorAlone]:
    broker = CoordinatorAlone(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[CoordinatorAlone]:
    """A partition with a follower, which lags until the test lets it fetch."""
    broker = CoordinatorAlone(tmp_path, (1, 2))
    yield broker
    broker.stop()


def write(broker: CoordinatorAlone, value: int, producer: Producer = PRODUCER) -> list[ErrorCode]:
    """Commit in a transaction; the outcome is appended to the list."""
    outcomes: list[ErrorCode] = []
    record = OffsetRecord("g", "t", 0, OffsetCommitValue(value, -1, "", 100), producer.id)
    broker.groups.write_in_transaction([record], producer, NOT_REQUIRED, outcomes.append)
    return outcomes


def end(broker: CoordinatorAlone, *, commit: bool, producer: Producer = PRODUCER) -> ErrorCode:
    result = broker.partition.end_transaction(TransactionMarker(*producer, 0, commit))
    assert isinstance(result, AppendInfo | Rejection)
    return result.error if isinstance(result, Rejection) else ErrorCode.NONE


def unstable(broker: CoordinatorAlone) -> bool:
    return broker.groups.shard.offsets.pending.is_pending("g", "t", 0)


def test_a_transactional_offset_is_committed_by_its_marker(broker: CoordinatorAlone) -> None:
    assert write(broker, 5) == [ErrorCode.NONE]
    assert (committed(broker), unstable(broker)) == (None, True)
    assert end(broker, commit=True) == ErrorCode.NONE
    assert (committed(broker), unstable(broker)) == (5, False)


def test_an_abort_marker_drops_pending_offsets(broker: CoordinatorAlone) -> None:
    write(broker, 5)
    end(broker, commit=False)
    assert (committed(broker), unstable(broker)) == (None, False)


def test_a_producer_of_an_old_epoch_is_fenced(broker: CoordinatorAlone) -> None:
    write(broker, 5)
    assert write(broker, 6, Producer(7, 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(broker, commit=True, producer=Producer(7, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (committed(broker), unstable(broker)) == (None, True)


def test_commits_and_markers_take_effect_at_the_high_watermark(followed: CoordinatorAlone) -> None:
    outcomes = write(followed, 5)
    end(followed, commit=True)
    drained: list[int | None] = []
    followed.groups.when_writes_committed(lambda error: drained.append(committed(followed)))
    assert (outcomes, committed(followed), unstable(followed), drained) == ([], None, False, [])
    followed.follower_fetched_everything()
    assert (outcomes, committed(followed), unstable(followed), drained) == ([ErrorCode.NONE], 5, False, [5])


def test_an_offset_is_unstable_until_the_marker_is_committed(followed: CoordinatorAlone) -> None:
    write(followed, 5)
    followed.follower_fetched_everything()
    end(followed, commit=True)
    assert (committed(followed), unstable(followed)) == (None, True)


def test_a_restart_loads_open_and_ended_transactions(broker: CoordinatorAlone, tmp_path: Path) -> None:
    write(broker, 5)
    end(broker, commit=True)
    write(broker, 6)
    write(broker, 9, Producer(8, 0))
    end(broker, commit=False, producer=Producer(8, 0))
    broker.stop()
    again = CoordinatorAlone(tmp_path)
    assert (committed(again), unstable(again)) == (5, True)
    assert write(again, 7, Producer(7, 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(again, commit=True) == ErrorCode.NONE
    assert (committed(again), unstable(again)) == (6, False)
    again.stop()


def test_a_marker_is_refused_while_the_log_is_loaded(broker: CoordinatorAlone, tmp_path: Path) -> None:
    write(broker, 5)
    for value in range(400):
        broker.groups.write([OffsetRecord("other", "t", value, offset(value).value)], lambda error: None)
    broker.stop()
    again = CoordinatorAlone(tmp_path)
    assert again.groups.state is CoordinatorState.LOADING
    assert end(again, commit=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again.soon.run()
    assert end(again, commit=True) == ErrorCode.NONE
    assert committed(again) == 5
    again.stop()


def test_a_coordinator_that_has_resigned_ignores_markers(broker: CoordinatorAlone) -> None:
    write(broker, 5)
    broker.groups.resign()
    assert end(broker, commit=True) == ErrorCode.NONE
    assert committed(broker) is None
