"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: from the first partition to the decision, in both protocols."""

from __future__ import annotations

import pytest
from broker.tests.transactions.core_alone import A0, A1, B0, MAX_EPOCH, CoreAlone

from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnRequest

NOBODY = Producer(-1, -1)
FENCED = (ErrorCode.PRODUCER_FENCED, NOBODY)
INVALID = (ErrorCode.INVALID_TXN_STATE, NOBODY)
CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
UNKNOWN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOBODY)


def complete(core: CoreAlone, commit: bool, version: int) -> Producer:
    """Run a transaction; return the producer after it."""
    producer = core.begun(A0)
    core.end(producer, commit, version=version)
    core.write_markers()
    return core.shard.transactions["t"].producer


# -- adding


def test_the_first_partition_begins_a_transaction() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    begun_ms = core.now.wall_ms
    core.pass_time(10)
    assert core.add(producer, B0) == ErrorCode.NONE
    transaction = core.shard.transactions["t"]
    assert transaction.partitions == {A0, B0}
    assert (transaction.start_ms, transaction.updated_ms) == (begun_ms, begun_ms + 10)


def test_adding_the_same_partitions_again_writes_no_record() -> None:
    core = CoreAlone()
    producer = core.begun(A0, A1)
    records = len(core.log)
    assert core.add(producer, A1) == ErrorCode.NONE
    assert len(core.log) == records


def test_add_offsets_adds_the_partition_of_the_group() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    offsets = ("__consumer_offsets", 3)
    core.apply(core.shard.add_offsets("t", producer, offsets, 3, "x", core.now))
    assert core.responses["x"] == ErrorCode.NONE
    assert core.shard.transactions["t"].partitions == {A0, offsets}


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (Producer(1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(1000, 1), ErrorCode.PRODUCER_FENCED),
        (Producer(1000, -1), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_present_producer_may_add_partitions(producer: Producer, error: ErrorCode) -> None:
    core = CoreAlone()
    core.init()
    assert core.add(producer, A0) == error


def test_adding_to_an_unknown_transactional_id_is_refused() -> None:
    core = CoreAlone()
    assert core.add(Producer(1, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert core.add(Producer(1, 0), A0, transactional_id="") == ErrorCode.INVALID_REQUEST


def test_the_next_transaction_begins_after_the_completion() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.end(producer)
    assert core.add(Producer(1000, 1), B0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.add(producer, B0) == ErrorCode.PRODUCER_FENCED, "the response does not wait for the markers"
    assert core.add(Producer(5, 0), B0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    core.write_markers()
    assert core.add(producer, B0) == ErrorCode.PRODUCER_FENCED
    assert core.add(Producer(1000, 1), B0) == ErrorCode.NONE
    assert core.shard.transactions["t"].partitions == {B0}


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_get_invalid_producer_epoch_for_fenced(version: int, error: ErrorCode) -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    outdated = Producer(producer.id, 5)
    assert core.add(outdated, A1, version=version) == error
    assert core.end(outdated, version=version) == (error, NOBODY)
    core.apply(core.shard.add_offsets("t", outdated, ("__consumer_offsets", 3), version, "x", core.now))
    assert core.responses["x"] == error


# -- verifying


def test_verification_finds_the_partitions_of_the_transaction() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    assert core.shard.verify_partitions("t", producer, [A0, A1]) == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }


def test_verification_refuses_other_producers() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    verify = core.shard.verify_partitions
    assert verify("t", Producer(1, 0), [A0]) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify("t", Producer(1000, 1), [A0]) == {A0: ErrorCode.PRODUCER_FENCED}
    assert verify("u", producer, [A0]) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify("", producer, [A0]) == {A0: ErrorCode.INVALID_REQUEST}


def test_verification_fails_while_a_transaction_ends_and_after() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.end(producer, version=4)
    assert core.shard.verify_partitions("t", producer, [A0]) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    core.write_markers()
    assert core.shard.verify_partitions("t", producer, [A0]) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


def test_a_pending_write_does_not_delay_verification() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.holds = True
    core.add(producer, A1)
    assert core.shard.verify_partitions("t", producer, [A0, A1]) == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }


# -- ending, before epochs grow


@pytest.mark.parametrize("commit", [True, False])
def test_v1_markers_have_the_epoch_of_the_transaction(commit: bool) -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0, B0)
    response = core.end(producer, commit, version=4)
    assert response is not None
    assert response[0] == ErrorCode.NONE
    (work,) = core.markers
    assert (work.producer, work.commit, work.transaction_version) == (producer, commit, 0)
    assert (work.partitions, work.coordinator_epoch) == ({A0, B0}, 3)
    assert core.state() is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    core.write_markers()
    assert core.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert core.shard.transactions["t"].producer == producer


@pytest.mark.parametrize("commit", [True, False])
def test_v1_repeating_the_same_end_succeeds(commit: bool) -> None:
    core = CoreAlone(level=1)
    producer = complete(core, commit, 4)
    again = core.end(producer, commit, version=4)
    assert again is not None
    assert again[0] == ErrorCode.NONE
    assert core.end(producer, not commit, version=4) == INVALID
    assert core.markers == []


@pytest.mark.parametrize("commit", [True, False])
def test_v1_ending_without_a_transaction_is_refused(commit: bool) -> None:
    core = CoreAlone(level=1)
    core.init()
    assert core.end(Producer(1000, 0), commit, version=4) == INVALID


def test_v1_another_end_while_a_transaction_ends_is_concurrent() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.end(producer, version=4)
    assert core.end(producer, True, version=4) == CONCURRENT
    assert core.end(producer, False, version=4) == CONCURRENT
    assert core.end(Producer(1000, 5), True, version=4) == FENCED
    assert core.end(Producer(5, 0), True, version=4) == UNKNOWN


# -- ending, with an epoch of its own


@pytest.mark.parametrize("commit", [True, False])
def test_v2_the_end_bumps_the_epoch_and_markers_have_the_new_one(commit: bool) -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    assert core.end(producer, commit) == (ErrorCode.NONE, Producer(1000, 1))
    assert core.markers[0].producer == Producer(1000, 1)
    assert core.markers[0].transaction_version == 2
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 1)


# As documented in Kafka's TransactionCoordinator: the state and the last outcome, the producer (a retry has the
# previous epoch), the request, and the result: an error, no change, or an abort that increments the epoch.
GROWS = "grows"


@pytest.mark.parametrize(
    ("before", "retry", "commit", "outcome"),
    [
        (None, False, False, GROWS),
        (None, False, True, ErrorCode.INVALID_TXN_STATE),
        (None, True, False, ErrorCode.PRODUCER_FENCED),
        (None, True, True, ErrorCode.PRODUCER_FENCED),
        (False, True, False, ErrorCode.NONE),
        (False, False, False, GROWS),
        (False, True, True, ErrorCode.INVALID_TXN_STATE),
        (False, False, True, ErrorCode.INVALID_TXN_STATE),
        (True, True, False, ErrorCode.INVALID_TXN_STATE),
        (True, False, False, GROWS),
        (True, True, True, ErrorCode.NONE),
        (True, False, True, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_v2_the_epoch_distinguishes_a_retry_from_the_next_end(
    before: bool | None, retry: bool, commit: bool, outcome: object
) -> None:
    core = CoreAlone()
    if before is None:
        core.init()
        core.init()
    else:
        complete(core, before, 5)
    present = core.shard.transactions["t"].producer
    response = core.end(Producer(present.id, present.epoch - retry), commit)
    if outcome is GROWS:
        assert response == (ErrorCode.NONE, Producer(present.id, present.epoch + 1))
        assert core.state() is TransactionState.COMPLETE_ABORT
        assert core.markers == [], "there is no partition to send a marker to"
    elif outcome is ErrorCode.NONE:
        assert response == (ErrorCode.NONE, present)
    else:
        assert response == (outcome, NOBODY)


def test_v2_a_retry_while_a_transaction_ends_is_concurrent() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.end(producer)
    for who in (producer, Producer(1000, producer.epoch + 1)):
        assert core.end(who) == CONCURRENT
    for epoch in (producer.epoch - 1, producer.epoch + 2):
        assert core.end(Producer(1000, epoch)) == FENCED
    assert core.end(Producer(9, 0)) == UNKNOWN


def test_v2_a_fenced_producer_gets_its_error_during_a_write() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.holds = True
    core.end(producer, request_id="end")
    assert core.end(producer) == CONCURRENT
    assert core.end(Producer(1000, producer.epoch - 1)) == FENCED
    assert core.end(Producer(9, 0)) == UNKNOWN


def test_v1_a_fenced_producer_gets_its_error_during_an_abort() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    assert core.init() == CONCURRENT
    assert core.end(producer) == FENCED
    assert core.add(producer, A0, version=3) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [0, 2, 3, -1])
def test_v2_ending_with_another_epoch_is_fenced(epoch: int) -> None:
    core = CoreAlone()
    core.init()
    core.begun(A0)
    assert core.end(Producer(1000, epoch)) == FENCED
    assert core.state() is TransactionState.ONGOING


def test_ending_an_unknown_transactional_id_is_refused() -> None:
    core = CoreAlone()
    for version in (4, 5):
        assert core.end(Producer(1, 0), version=version) == UNKNOWN
        assert core.end(Producer(1, 0), transactional_id="", version=version) == (ErrorCode.INVALID_REQUEST, NOBODY)
    core.init()
    for version in (4, 5):
        assert core.end(Producer(1, 0), version=version) == UNKNOWN


def test_a_fenced_producer_is_not_taken_for_a_retry() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.end(producer, version=4)
    core.write_markers()
    assert core.end(Producer(producer.id, producer.epoch - 1)) == FENCED


def test_v2_an_abort_without_a_transaction_writes_its_start() -> None:
    core = CoreAlone()
    core.init()
    core.end(Producer(1000, 0), commit=False)
    assert core.shard.transactions["t"].start_ms == core.now.wall_ms


# -- when epochs are used up


def exhausted(core: CoreAlone, *partitions: tuple[str, int]) -> Producer:
    last = Producer(7, MAX_EPOCH - 1)
    core.put(TransactionMetadata(last, 60_000, previous_producer_id=7))
    if partitions:
        assert core.add(last, *partitions) == ErrorCode.NONE
    return last


@pytest.mark.parametrize("commit", [True, False])
def test_an_exhausted_epoch_ends_with_a_new_producer_id(commit: bool) -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    assert core.end(last, commit) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 0)
    assert core.end(last, commit) == (ErrorCode.NONE, Producer(1000, 0)), "a retry"
    assert core.end(last, not commit) == INVALID
    assert core.add(Producer(1000, 0), A0) == ErrorCode.NONE
    assert core.end(last, commit) == UNKNOWN, "the next transaction has begun"


def test_the_next_producer_id_survives_a_change_of_coordinator() -> None:
    core = CoreAlone()
    core.end(exhausted(core, A0))
    again = core.restarted()
    again.write_markers()
    assert again.shard.transactions["t"].producer == Producer(1000, 0)
    assert again.end(Producer(7, MAX_EPOCH - 1)) == (ErrorCode.NONE, Producer(1000, 0))


def test_the_next_producer_id_waits_for_the_previous_markers() -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    response = core.end(last)
    assert response == (ErrorCode.NONE, Producer(1000, 0))
    assert core.add(response[1], B0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.end(response[1], commit=False) == CONCURRENT
    assert core.end(last) == CONCURRENT, "a retry"
    core.write_markers()
    assert core.add(response[1], B0) == ErrorCode.NONE


def test_end_txn_without_a_fresh_producer_id_is_concurrent() -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    core.apply(core.shard.end_txn(EndTxnRequest("t", *last, committed=True), 5, None, "x", core.now))
    assert core.outcome("x") == CONCURRENT
    assert core.state() is TransactionState.ONGOING


def test_the_maximum_epoch_ends_with_a_new_producer_id() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH), 60_000))
    core.add(Producer(7, MAX_EPOCH), A0)
    assert core.end(Producer(7, MAX_EPOCH), commit=False) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
