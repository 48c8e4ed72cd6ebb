"""Pending writes and markers, deadlines, and loading by the next coordinator."""

from __future__ import annotations

import pytest
from broker.tests.transactions.core_alone import A0, A1, B0, MAX_EPOCH, CoreAlone

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.transactions.core.transaction_loader import TransactionLoader
from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_broker.transactions.core.transaction_records import TransactionRecord
from odradek_broker.transactions.core.transaction_rules import NO_PRODUCER
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_state_manager import NO_TIMEOUT_MS, RETRY_MS
from odradek_broker.transactions.core.transaction_step import TransactionSettings
from odradek_wire.errors import DecodeError, ErrorCode
from odradek_wire.records.builder import BatchBuilder

NOBODY = Producer(-1, -1)
CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
UNAVAILABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
DAY_MS = 24 * 60 * 60 * 1000


# -- pending writes


def test_requests_during_a_write_are_concurrent() -> None:
    core = CoreAlone()
    core.holds = True
    assert core.init(request_id="first") is None
    assert core.init() == CONCURRENT
    core.let_through()
    assert core.outcome("first") == (ErrorCode.NONE, Producer(1000, 0))
    assert core.add(Producer(1000, 0), A0, request_id="second") is None
    assert core.add(Producer(1000, 0), A0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.add(Producer(5, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING, "another producer does not wait"
    assert core.end(Producer(1000, 0)) == CONCURRENT
    assert core.init("u", request_id="third") is None, "other ids are not busy"


def test_metadata_changes_only_when_the_record_is_replayed() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.holds = True
    core.end(producer, request_id="end")
    assert core.state() is TransactionState.ONGOING
    assert core.outcome("end") is None
    assert core.markers == []
    core.let_through()
    assert core.state() is TransactionState.PREPARE_COMMIT
    assert core.outcome("end") == (ErrorCode.NONE, Producer(1000, 1))
    assert len(core.markers) == 1


@pytest.mark.parametrize(
    ("log_error", "client_error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_failed_write_changes_nothing(log_error: ErrorCode, client_error: ErrorCode) -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.refuses = log_error
    assert core.end(producer) == (client_error, NOBODY)
    assert core.add(producer, A1) == client_error
    assert core.init() == (client_error, NOBODY)
    assert core.init("u") == (client_error, NOBODY)
    core.refuses = ErrorCode.NONE
    assert core.shard.transactions.keys() == {"t"}
    assert core.state() is TransactionState.ONGOING
    assert core.end(producer) == (ErrorCode.NONE, Producer(1000, 1))


def test_after_a_timed_out_write_the_id_stays_busy() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.holds = True
    core.end(producer, commit=True, request_id="end")
    core.time_out()
    assert core.outcome("end") == UNAVAILABLE
    assert core.end(producer, commit=False) == CONCURRENT, "the timed-out write may still be committed"
    core.time_out()
    core.holds = False
    core.let_through()
    assert core.state() is TransactionState.PREPARE_COMMIT
    core.write_markers()
    assert core.end(producer, commit=True) == (ErrorCode.NONE, Producer(1000, 1)), "the retry succeeds"


def test_a_late_outcome_of_a_write_changes_nothing() -> None:
    core = CoreAlone()
    core.holds = True
    core.init(request_id="x")
    (step,) = core.held
    assert step.write is not None
    core.let_through()
    late = core.shard.written(step.write, ErrorCode.NOT_LEADER_OR_FOLLOWER, core.now)
    assert (late.responses, late.records, late.markers) == ([], [], [])


# -- markers


def test_a_transaction_completes_when_all_partitions_have_markers() -> None:
    core = CoreAlone()
    producer = core.begun(A0, A1, B0)
    core.end(producer)
    core.write_markers(A1)
    core.write_markers(A1)
    assert core.shard.describe("t").topics[0].partitions == [0]
    core.write_markers(A0)
    assert core.state() is TransactionState.PREPARE_COMMIT
    core.write_markers(B0)
    transaction = core.shard.transactions["t"]
    assert transaction.state is TransactionState.COMPLETE_COMMIT
    assert transaction.partitions == frozenset()


def test_reports_of_outdated_markers_change_nothing() -> None:
    core = CoreAlone()
    core.end(core.begun(A0))
    outdated = core.markers[0]
    core.write_markers()
    core.add(Producer(1000, 1), A0)
    core.end(Producer(1000, 1))
    assert core.shard.markers_written(outdated, [A0], core.now).records == []
    assert core.state() is TransactionState.PREPARE_COMMIT


def test_a_completion_that_cannot_be_written_is_retried() -> None:
    core = CoreAlone()
    core.end(core.begun(A0))
    core.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    core.write_markers()
    core.pass_time(3 * RETRY_MS)
    assert core.state() is TransactionState.PREPARE_COMMIT
    assert core.init() == CONCURRENT
    core.refuses = ErrorCode.NONE
    core.pass_time(RETRY_MS)
    assert core.state() is TransactionState.COMPLETE_COMMIT
    assert core.shard.next_ms() is None


def test_a_completion_that_takes_long_is_not_written_twice() -> None:
    core = CoreAlone()
    core.end(core.begun(A0))
    core.holds = True
    core.write_markers()
    core.time_out()
    core.pass_time(10 * RETRY_MS)
    assert len(core.held) == 1
    core.let_through()
    assert core.state() is TransactionState.COMPLETE_COMMIT


# -- timed-out transactions


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_timed_out_transaction_is_aborted_and_fenced(level: int) -> None:
    core = CoreAlone(level)
    producer = core.begun(A0, timeout_ms=1000)
    core.pass_time(500)
    core.add(producer, A1)
    core.pass_time(499)
    assert core.state() is TransactionState.ONGOING
    core.pass_time(1)
    assert core.state() is TransactionState.PREPARE_ABORT
    assert core.events == ["timed-out transaction aborted"]
    assert (core.markers[0].producer, core.markers[0].commit) == (Producer(1000, 1), False)
    core.write_markers()
    assert core.add(producer, A0) == ErrorCode.PRODUCER_FENCED
    assert core.end(producer, version=4) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert core.init() == (ErrorCode.NONE, Producer(1000, 2))


def test_v2_aborting_a_timed_out_transaction_succeeds() -> None:
    core = CoreAlone()
    producer = core.begun(A0, timeout_ms=1000)
    core.pass_time(1000)
    assert core.end(producer, commit=False) == CONCURRENT
    core.write_markers()
    assert core.end(producer, commit=True) == (ErrorCode.INVALID_TXN_STATE, NOBODY)
    assert core.end(producer, commit=False) == (ErrorCode.NONE, Producer(1000, 1))


def test_each_transaction_has_its_own_timeout() -> None:
    core = CoreAlone()
    producer = core.begun(A0, timeout_ms=1000)
    core.pass_time(900)
    core.end(producer)
    core.write_markers()
    assert core.shard.next_ms() is None
    core.add(Producer(1000, 1), A0)
    core.pass_time(900)
    assert core.state() is TransactionState.ONGOING
    core.pass_time(100)
    assert core.state() is TransactionState.PREPARE_ABORT


def test_without_an_open_transaction_there_is_no_deadline() -> None:
    core = CoreAlone()
    core.init()
    assert core.shard.next_ms() is None


def test_a_busy_id_at_its_timeout_is_checked_again() -> None:
    core = CoreAlone(settings=TransactionSettings(abort_interval_ms=300))
    producer = core.begun(A0, timeout_ms=1000)
    core.holds = True
    core.add(producer, A1)
    core.pass_time(1000)
    core.let_through()
    core.holds = False
    assert core.state() is TransactionState.ONGOING
    core.pass_time(300)
    assert core.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_that_begins_after_its_timeout_is_aborted() -> None:
    core = CoreAlone(settings=TransactionSettings(abort_interval_ms=300))
    core.init(timeout_ms=1000)
    core.holds = True
    core.add(Producer(1000, 0), A0)
    core.pass_time(1500)
    core.holds = False
    core.let_through()
    assert core.state() is TransactionState.ONGOING
    core.pass_time(300)
    assert core.state() is TransactionState.PREPARE_ABORT


def test_an_abort_that_cannot_be_written_is_retried() -> None:
    core = CoreAlone(level=1, settings=TransactionSettings(abort_interval_ms=300))
    core.begun(A0, timeout_ms=1000)
    core.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    core.pass_time(2000)
    core.refuses = ErrorCode.NONE
    core.pass_time(300)
    assert core.state() is TransactionState.PREPARE_ABORT
    assert core.shard.transactions["t"].producer == Producer(1000, 1), "the retries use one epoch"


def test_an_abort_that_needs_a_fresh_producer_id_waits_for_one() -> None:
    core = CoreAlone(settings=TransactionSettings(abort_interval_ms=300))
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    core.add(Producer(7, MAX_EPOCH - 1), A0)
    core.now = Instant(core.now.wall_ms + 1000, core.now.monotonic_ms + 1000)
    assert list(core.shard.handle_deadlines(core.now, lambda: None)) == []
    core.pass_time(300)
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 0)
    assert core.end(Producer(7, MAX_EPOCH - 1), commit=False) == (ErrorCode.NONE, Producer(1000, 0)), "a retry"


def test_a_transaction_of_a_two_phase_commit_has_no_timeout() -> None:
    core = CoreAlone(settings=TransactionSettings(max_timeout_ms=NO_TIMEOUT_MS))
    core.begun(A0, timeout_ms=NO_TIMEOUT_MS)
    assert core.shard.next_ms() is None


# -- expiration of ids


def test_unused_transactional_ids_expire() -> None:
    core = CoreAlone()
    core.init("empty")
    core.end(core.begun(A0))
    core.write_markers()
    core.pass_time(1)
    core.init("younger")
    core.pass_time(7 * DAY_MS - 1)
    core.expire_ids()
    assert core.shard.transactions.keys() == {"younger"}
    assert [value for _, value in core.log[-2:]] == [None, None]
    assert core.restarted().shard.transactions.keys() == {"younger"}
    assert core.init() == (ErrorCode.NONE, Producer(1003, 0))


def test_an_id_that_is_used_during_the_expiration_does_not_expire() -> None:
    core = CoreAlone()
    ids = [f"{number:03}" + "x" * 30_000 for number in range(10)]
    for id_ in ids:
        core.init(id_)
    core.pass_time(7 * DAY_MS)
    steps = core.shard.expire_ids(core.now)
    core.apply(next(steps))
    assert 0 < len(core.shard.transactions) < len(ids), "more than fits into one batch"
    assert core.init(ids[-1])[0] == ErrorCode.NONE
    for step in steps:
        core.apply(step)
    assert core.shard.transactions.keys() == {ids[-1]}


def test_open_and_ending_transactions_do_not_expire() -> None:
    core = CoreAlone(settings=TransactionSettings(id_expiration_ms=10, max_timeout_ms=2**31 - 1))
    core.init("open", timeout_ms=NO_TIMEOUT_MS)
    core.add(Producer(1000, 0), A0, transactional_id="open")
    core.init("ending")
    core.add(Producer(1001, 0), A0, transactional_id="ending")
    core.end(Producer(1001, 0), transactional_id="ending")
    core.pass_time(100)
    core.expire_ids()
    assert core.shard.transactions.keys() == {"open", "ending"}


def test_an_id_is_busy_while_it_expires() -> None:
    core = CoreAlone()
    core.init()
    core.pass_time(7 * DAY_MS)
    core.holds = True
    core.expire_ids()
    core.expire_ids()
    assert len(core.held) == 1
    assert core.init() == CONCURRENT
    (step,) = core.held
    assert step.write is not None
    core.apply(core.shard.written(step.write, ErrorCode.NOT_ENOUGH_REPLICAS, core.now))
    core.holds = False
    core.held.clear()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 1))


def test_tombstones_are_written_in_batches_of_limited_size() -> None:
    core = CoreAlone()
    for number in range(50):
        core.put(TransactionMetadata(Producer(number, 0), 1000), f"{number:010000}")
    core.pass_time(7 * DAY_MS)
    steps = list(core.shard.expire_ids(core.now))
    assert [len(step.records) for step in steps] == [7, 7, 7, 7, 7, 7, 7, 1]


# -- the next coordinator


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_sends_markers_of_decisions(commit: bool) -> None:
    core = CoreAlone()
    core.end(core.begun(A0, A1), commit)
    core.write_markers(A0)
    again = core.restarted()
    (work,) = again.markers
    assert (work.producer, work.commit, work.partitions) == (Producer(1000, 1), commit, {A0, A1})
    assert work.coordinator_epoch == core.coordinator_epoch + 1
    assert again.init() == CONCURRENT
    again.write_markers()
    assert again.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


def test_the_next_coordinator_completes_without_partitions() -> None:
    core = CoreAlone()
    for id_ in ("t", "u"):
        core.init(id_)
        core.shard.replay(TransactionRecord(id_, core.shard.transactions[id_].decide(False, 2, -1, 1)))
    core.apply(core.shard.loaded(4, core.now))
    assert [core.state("t"), core.state("u")] == [TransactionState.COMPLETE_ABORT] * 2


def test_loading_keeps_the_rest_of_a_transactions_timeout() -> None:
    core = CoreAlone()
    core.begun(A0, timeout_ms=1000)
    core.pass_time(600)
    again = core.restarted()
    again.pass_time(399)
    assert again.state() is TransactionState.ONGOING
    again.pass_time(1)
    assert again.state() is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize(("moved_ms", "left_ms"), [(-DAY_MS, 1000), (DAY_MS, 0)])
def test_a_moved_wall_clock_gives_at_most_the_whole_timeout(moved_ms: int, left_ms: int) -> None:
    core = CoreAlone()
    core.begun(A0, timeout_ms=1000)
    core.now = Instant(core.now.wall_ms + moved_ms, core.now.monotonic_ms)
    assert core.restarted().shard.next_ms() == core.now.monotonic_ms + left_ms


def test_moving_the_wall_clock_alone_aborts_no_transaction() -> None:
    core = CoreAlone()
    core.begun(A0, timeout_ms=1000)
    core.now = Instant(core.now.wall_ms + DAY_MS, core.now.monotonic_ms)
    core.pass_time(999)
    assert core.state() is TransactionState.ONGOING


def test_pending_requests_get_not_coordinator_when_unloaded() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.holds = True
    core.init("u", request_id="init")
    core.end(producer, request_id="end")
    core.init("v", request_id="already answered")
    core.time_out()
    core.init("w", request_id="add")
    core.held.clear()
    core.apply(core.shard.unload(core.now))
    assert core.outcome("add") == (ErrorCode.NOT_COORDINATOR, NOBODY)
    assert core.outcome("init") == core.outcome("end") == core.outcome("already answered") == UNAVAILABLE
    assert core.shard.transactions == {}
    assert core.shard.next_ms() is None


def test_nothing_happens_after_unloading() -> None:
    core = CoreAlone()
    core.end(core.begun(A0))
    work = core.markers[0]
    core.apply(core.shard.unload(core.now))
    assert core.shard.markers_written(work, [A0], core.now).records == []


def test_v0_records_have_the_older_version() -> None:
    core = CoreAlone(level=0)
    core.init()
    core.shard.transaction_version = 1
    core.init()
    assert [value[:2] for _, value in core.log if value] == [b"\0\0", b"\0\1"]


def test_v0_requests_of_version_2_are_unsupported() -> None:
    core = CoreAlone(level=0)
    response = core.init()
    assert response is not None
    assert core.add(response[1], A0, version=4) == ErrorCode.UNSUPPORTED_VERSION
    assert core.end(response[1], commit=False, version=5) == (ErrorCode.UNSUPPORTED_VERSION, NO_PRODUCER)
    assert core.add(response[1], A0, version=3) == ErrorCode.NONE
    assert core.end(response[1], version=5) == (ErrorCode.UNSUPPORTED_VERSION, NO_PRODUCER)
    assert core.end(response[1], version=4) == (ErrorCode.NONE, response[1])


# -- loading


def test_loading_replays_only_the_last_record_of_each_id() -> None:
    core = CoreAlone()
    core.end(core.begun(A0))
    core.write_markers()
    core.init("gone")
    core.log.append((core.log[-1][0], None))
    core.init("u")
    core.log.append((b"\0\x09from the future", b"x"))
    data = b""
    for offset, (key, value) in enumerate(core.log):
        builder = BatchBuilder(base_offset=offset)
        builder.append(1, key, value)
        data += builder.build()
    shard = TransactionShard(TransactionSettings())
    loading = TransactionLoader(shard)
    half = len(data) // 2
    read = loading.read_batches(memoryview(data)[:half])
    assert 0 < read < len(core.log), "half a batch is left"
    assert loading.read_batches(memoryview(data)) == len(core.log)
    while loading.replay_next(1):
        pass
    assert set(shard.transactions) == {"t", "u"}
    assert shard.transactions["t"].state is TransactionState.COMPLETE_COMMIT


def test_a_broken_record_fails_loading() -> None:
    builder = BatchBuilder()
    builder.append(1, b"\0\0\0\1t", b"\0\1")
    loading = TransactionLoader(TransactionShard(TransactionSettings()))
    loading.read_batches(memoryview(builder.build()))
    with pytest.raises(DecodeError):
        loading.replay_next(1)
