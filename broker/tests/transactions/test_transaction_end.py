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
    """A transaction has been carried out; who produces now?"""
    producer = core.begun(A0)
    core.end(producer, commit, version=version)
    core.write_markers()
    return core.shard.transactions["t"].producer


# -- adding


def test_the_first_partition_begins_a_transaction_and_others_join_it() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    begun_ms = core.now.wall_ms
    core.pass_time(10)
    assert core.add(producer, B0) == ErrorCode.NONE
    transaction = core.shard.transactions["t"]
    assert transaction.partitions == {A0, B0}
    assert (transaction.start_ms, transaction.updated_ms) == (begun_ms, begun_ms + 10)


def test_partitions_that_are_in_the_transaction_need_no_record() -> None:
    core = CoreAlone()
    producer = core.begun(A0, A1)
    records = len(core.log)
    assert core.add(producer, A1) == ErrorCode.NONE
    assert len(core.log) == records


def test_a_groups_offsets_are_one_more_partition() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    offsets = ("__consumer_offsets", 3)
    core.carry_out(core.shard.add_offsets("t", producer, offsets, 3, "x", core.now))
    assert core.answers["x"] == ErrorCode.NONE
    assert core.shard.transactions["t"].partitions == {A0, offsets}


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (Producer(1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(1000, 1), ErrorCode.PRODUCER_FENCED),
        (Producer(1000, -1), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_present_producer_may_add(producer: Producer, error: ErrorCode) -> None:
    core = CoreAlone()
    core.init()
    assert core.add(producer, A0) == error


def test_nothing_is_added_to_an_id_that_nobody_knows() -> None:
    core = CoreAlone()
    assert core.add(Producer(1, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert core.add(Producer(1, 0), A0, transactional_id="") == ErrorCode.INVALID_REQUEST


def test_nothing_is_added_while_a_transaction_ends_and_the_next_begins_once_it_is_complete() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    core.end(producer)
    assert core.add(Producer(1000, 1), B0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.add(producer, B0) == ErrorCode.PRODUCER_FENCED, "and need not wait to hear of it"
    assert core.add(Producer(5, 0), B0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    core.write_markers()
    assert core.add(producer, B0) == ErrorCode.PRODUCER_FENCED
    assert core.add(Producer(1000, 1), B0) == ErrorCode.NONE
    assert core.shard.transactions["t"].partitions == {B0}


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_clients_before_version_2_do_not_know_what_fenced_means(version: int, error: ErrorCode) -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    outdated = Producer(producer.id, 5)
    assert core.add(outdated, A1, version=version) == error
    assert core.end(outdated, version=version) == (error, NOBODY)
    core.carry_out(core.shard.add_offsets("t", outdated, ("__consumer_offsets", 3), version, "x", core.now))
    assert core.answers["x"] == error


# -- verifying


def test_what_is_in_the_open_transaction_is_verified_and_the_rest_can_only_be_aborted() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    assert core.shard.verify_partitions("t", producer, [A0, A1]) == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }


def test_only_the_present_producer_is_verified() -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    verify = core.shard.verify_partitions
    assert verify("t", Producer(1, 0), [A0]) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify("t", Producer(1000, 1), [A0]) == {A0: ErrorCode.PRODUCER_FENCED}
    assert verify("u", producer, [A0]) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify("", producer, [A0]) == {A0: ErrorCode.INVALID_REQUEST}


def test_nothing_is_verified_while_a_transaction_ends_nor_after() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.end(producer, version=4)
    assert core.shard.verify_partitions("t", producer, [A0]) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    core.write_markers()
    assert core.shard.verify_partitions("t", producer, [A0]) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


def test_a_record_under_way_does_not_keep_from_verifying_what_is_known() -> None:
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
def test_the_decision_is_told_to_all_partitions_with_the_producer_as_it_is(commit: bool) -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0, B0)
    told = core.end(producer, commit, version=4)
    assert told is not None
    assert told[0] == ErrorCode.NONE
    (work,) = core.markers
    assert (work.producer, work.commit, work.transaction_version) == (producer, commit, 0)
    assert (work.partitions, work.coordinator_epoch) == ({A0, B0}, 3)
    assert core.state() is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    core.write_markers()
    assert core.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert core.shard.transactions["t"].producer == producer


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_end_once_more_is_taken_for_a_retry(commit: bool) -> None:
    core = CoreAlone(level=1)
    producer = complete(core, commit, 4)
    again = core.end(producer, commit, version=4)
    assert again is not None
    assert again[0] == ErrorCode.NONE
    assert core.end(producer, not commit, version=4) == INVALID
    assert core.markers == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_never_began_cannot_end(commit: bool) -> None:
    core = CoreAlone(level=1)
    core.init()
    assert core.end(Producer(1000, 0), commit, version=4) == INVALID


def test_while_it_ends_every_end_has_to_wait_but_who_is_outdated_is_told_so() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.end(producer, version=4)
    assert core.end(producer, True, version=4) == CONCURRENT
    assert core.end(producer, False, version=4) == CONCURRENT
    assert core.end(Producer(1000, 5), True, version=4) == FENCED
    assert core.end(Producer(5, 0), True, version=4) == UNKNOWN


# -- ending, with an epoch of its own


@pytest.mark.parametrize("commit", [True, False])
def test_with_its_end_the_epoch_grows_and_the_markers_carry_the_new_one(commit: bool) -> None:
    core = CoreAlone()
    producer = core.begun(A0)
    assert core.end(producer, commit) == (ErrorCode.NONE, Producer(1000, 1))
    assert core.markers[0].producer == Producer(1000, 1)
    assert core.markers[0].transaction_version == 2
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 1)


# What Kafka documents (TransactionCoordinator): state after which end, who asks (retry: with the epoch before), for
# what, and whether that is an error, nothing new, or an abortion that makes the epoch grow.
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
def test_the_epoch_tells_a_retry_from_the_end_of_a_transaction_that_never_began(
    before: bool | None, retry: bool, commit: bool, outcome: object
) -> None:
    core = CoreAlone()
    if before is None:
        core.init()
        core.init()
    else:
        complete(core, before, 5)
    present = core.shard.transactions["t"].producer
    told = core.end(Producer(present.id, present.epoch - retry), commit)
    if outcome is GROWS:
        assert told == (ErrorCode.NONE, Producer(present.id, present.epoch + 1))
        assert core.state() is TransactionState.COMPLETE_ABORT
        assert core.markers == [], "there is nobody to tell"
    elif outcome is ErrorCode.NONE:
        assert told == (ErrorCode.NONE, present)
    else:
        assert told == (outcome, NOBODY)


def test_while_it_ends_a_retry_has_to_wait_but_who_is_outdated_is_told_so_with_any_version() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.end(producer)
    for who in (producer, Producer(1000, producer.epoch + 1)):
        assert core.end(who) == CONCURRENT
    for epoch in (producer.epoch - 1, producer.epoch + 2):
        assert core.end(Producer(1000, epoch)) == FENCED
    assert core.end(Producer(9, 0)) == UNKNOWN


def test_who_is_outdated_is_told_so_while_the_end_of_its_transaction_is_being_written() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.holds = True
    core.end(producer, token="end")
    assert core.end(producer) == CONCURRENT
    assert core.end(Producer(1000, producer.epoch - 1)) == FENCED
    assert core.end(Producer(9, 0)) == UNKNOWN


def test_who_was_fenced_before_epochs_grow_is_told_so_while_its_transaction_is_aborted() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    assert core.init() == CONCURRENT
    assert core.end(producer) == FENCED
    assert core.add(producer, A0, version=3) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [0, 2, 3, -1])
def test_with_any_other_epoch_nobody_ends_an_open_transaction(epoch: int) -> None:
    core = CoreAlone()
    core.init()
    core.begun(A0)
    assert core.end(Producer(1000, epoch)) == FENCED
    assert core.state() is TransactionState.ONGOING


def test_nobody_ends_what_nobody_knows() -> None:
    core = CoreAlone()
    for version in (4, 5):
        assert core.end(Producer(1, 0), version=version) == UNKNOWN
        assert core.end(Producer(1, 0), transactional_id="", version=version) == (ErrorCode.INVALID_REQUEST, NOBODY)
    core.init()
    for version in (4, 5):
        assert core.end(Producer(1, 0), version=version) == UNKNOWN


def test_who_was_outdated_by_another_producer_is_not_taken_for_that_one() -> None:
    core = CoreAlone()
    core.init()
    producer = core.begun(A0)
    core.end(producer, version=4)
    core.write_markers()
    assert core.end(Producer(producer.id, producer.epoch - 1)) == FENCED


def test_an_abortion_of_nothing_counts_as_a_transaction_that_began_then() -> None:
    core = CoreAlone()
    core.init()
    core.end(Producer(1000, 0), commit=False)
    assert core.shard.transactions["t"].start_ms == core.now.wall_ms


# -- when epochs are used up


def exhausted(core: CoreAlone, *partitions: tuple[str, int]) -> Producer:
    last = Producer(7, MAX_EPOCH - 1)
    core.put(TransactionMetadata(last, 60_000, previous_id=7))
    if partitions:
        assert core.add(last, *partitions) == ErrorCode.NONE
    return last


@pytest.mark.parametrize("commit", [True, False])
def test_with_the_last_epoch_the_next_producer_has_another_id_but_the_markers_carry_the_old_one(commit: bool) -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    assert core.end(last, commit) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 0)
    assert core.end(last, commit) == (ErrorCode.NONE, Producer(1000, 0)), "a retry"
    assert core.end(last, not commit) == INVALID
    assert core.add(Producer(1000, 0), A0) == ErrorCode.NONE
    assert core.end(last, commit) == UNKNOWN, "no retry any more"


def test_the_id_that_comes_next_outlives_the_coordinator() -> None:
    core = CoreAlone()
    core.end(exhausted(core, A0))
    again = core.restarted()
    again.write_markers()
    assert again.shard.transactions["t"].producer == Producer(1000, 0)
    assert again.end(Producer(7, MAX_EPOCH - 1)) == (ErrorCode.NONE, Producer(1000, 0))


def test_who_knows_its_next_id_already_has_to_wait_for_the_markers_of_the_one_before() -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    told = core.end(last)
    assert told == (ErrorCode.NONE, Producer(1000, 0))
    assert core.add(told[1], B0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.end(told[1], commit=False) == CONCURRENT
    assert core.end(last) == CONCURRENT, "a retry"
    core.write_markers()
    assert core.add(told[1], B0) == ErrorCode.NONE


def test_without_a_fresh_id_at_hand_the_client_comes_again_to_end() -> None:
    core = CoreAlone()
    last = exhausted(core, A0)
    core.carry_out(core.shard.end_txn(EndTxnRequest("t", *last, committed=True), 5, None, "x", core.now))
    assert core.told("x") == CONCURRENT
    assert core.state() is TransactionState.ONGOING


def test_an_epoch_beyond_the_last_grows_no_more_but_its_transaction_ends_with_another_id() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH), 60_000))
    core.add(Producer(7, MAX_EPOCH), A0)
    assert core.end(Producer(7, MAX_EPOCH), commit=False) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
