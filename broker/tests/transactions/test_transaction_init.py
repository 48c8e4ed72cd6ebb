"""InitProducerId with a transactional id: who produces from now on, and who no longer."""

from __future__ import annotations

import pytest
from broker.tests.transactions.core_alone import A0, A1, MAX_EPOCH, CoreAlone

from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_broker.transactions.core.transaction_step import TransactionSettings
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.init_producer_id import InitProducerIdRequest

NOBODY = Producer(-1, -1)


def test_a_new_id_gets_a_fresh_producer_with_epoch_0() -> None:
    core = CoreAlone()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 0))
    assert core.shard.transactions["t"] == TransactionMetadata(
        Producer(1000, 0), 60_000, updated_ms=core.now.wall_ms, previous_id=1000
    )


def test_ids_do_not_share_producers() -> None:
    core = CoreAlone()
    assert core.init("t") == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init("u") == (ErrorCode.NONE, Producer(1001, 0))


def test_whoever_asks_again_gets_the_next_epoch_and_its_own_timeout() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(timeout_ms=5) == (ErrorCode.NONE, Producer(1000, 1))
    assert core.shard.transactions["t"].timeout_ms == 5


@pytest.mark.parametrize("commit", [True, False])
def test_after_a_transaction_is_complete_the_epoch_grows_all_the_same(commit: bool) -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.end(producer, commit, version=4)
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 1))
    assert core.state() is TransactionState.EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_positive_and_not_above_the_brokers_maximum(timeout_ms: int) -> None:
    core = CoreAlone()
    assert core.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY)
    assert core.shard.transactions == {}
    told = core.init(timeout_ms=900_000)
    assert told is not None
    assert told[0] == ErrorCode.NONE


def test_the_maximum_of_timeouts_is_a_setting() -> None:
    core = CoreAlone(settings=TransactionSettings(max_timeout_ms=10))
    assert core.init(timeout_ms=11) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY)


@pytest.mark.parametrize("expected", [Producer(-1, 0), Producer(5, -1)])
def test_half_an_identity_is_no_request(expected: Producer) -> None:
    assert CoreAlone().init(expected=expected) == (ErrorCode.INVALID_REQUEST, NOBODY)


def test_an_empty_transactional_id_is_no_request() -> None:
    assert CoreAlone().init("") == (ErrorCode.INVALID_REQUEST, NOBODY)


def test_without_a_fresh_id_at_hand_the_client_comes_again() -> None:
    core = CoreAlone()
    core.carry_out(core.shard.init_producer_id(InitProducerIdRequest("t", 1000), 5, None, "x", core.now))
    assert core.told("x") == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    assert core.shard.transactions == {}


# -- fencing


def test_an_open_transaction_is_aborted_first_and_its_producer_outdated_before_epochs_grow() -> None:
    core = CoreAlone(level=1)
    zombie = core.begun(A0)
    assert core.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    work = core.markers[0]
    assert (work.producer, work.commit, work.transaction_version) == (Producer(1000, 1), False, 0)
    assert core.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY), "markers are on their way"
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 2))
    assert core.add(zombie, A0, version=3) == ErrorCode.PRODUCER_FENCED
    assert core.end(zombie, version=4) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_an_open_transaction_is_aborted_first_with_one_epoch_only_where_epochs_grow_anyway() -> None:
    core = CoreAlone(level=2)
    zombie = core.begun(A0)
    assert core.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    work = core.markers[0]
    assert (work.producer, work.commit, work.transaction_version) == (Producer(1000, 1), False, 2)
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 2))
    assert core.add(zombie, A0) == ErrorCode.PRODUCER_FENCED
    assert core.end(zombie) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_the_level_of_the_cluster_decides_how_a_transaction_is_aborted_not_whose_it_is() -> None:
    core = CoreAlone(level=2)
    told = core.init()
    assert told is not None
    core.add(told[1], A0, version=3)
    core.init()
    assert core.markers[0].transaction_version == 2
    core.shard.transaction_version = 0
    core.write_markers()
    assert core.state() is TransactionState.COMPLETE_ABORT


# -- KIP-360: going on with the identity one had


def test_a_producer_that_goes_on_gets_the_next_epoch() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.NONE, Producer(1000, 1))


def test_a_retry_of_going_on_is_told_the_same_again() -> None:
    core = CoreAlone()
    core.init()
    core.init(expected=Producer(1000, 0))
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.NONE, Producer(1000, 1))


def test_after_somebody_else_came_nobody_goes_on_with_an_old_epoch() -> None:
    core = CoreAlone()
    core.init()
    core.init(expected=Producer(1000, 0))
    core.init()
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert core.init(expected=Producer(1000, 1)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert core.init(expected=Producer(1000, 2)) == (ErrorCode.NONE, Producer(1000, 3))


def test_with_the_id_of_another_producer_nobody_goes_on() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(999, 0)) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_an_id_that_was_forgotten_gives_a_producer_that_goes_on_a_fresh_identity() -> None:
    core = CoreAlone()
    assert core.init(expected=Producer(77, 12)) == (ErrorCode.NONE, Producer(1000, 0))


def test_going_on_after_an_error_aborts_what_is_open() -> None:
    core = CoreAlone()
    producer = core.begun(A0, A1)
    assert core.init(expected=producer) == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    core.write_markers()
    # As in Kafka: who began it has lost its epoch to the abortion, unless it is the previous one.
    assert core.init(expected=producer) == (ErrorCode.NONE, Producer(1000, 1))


def test_going_on_after_an_abortion_before_epochs_grow_is_too_late() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.init(expected=producer)
    core.write_markers()
    assert core.init(expected=producer) == (ErrorCode.PRODUCER_FENCED, NOBODY)


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_clients_before_version_4_do_not_know_what_fenced_means(version: int, error: ErrorCode) -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(1000, 7), version=version) == (error, NOBODY)


# -- when epochs are used up


def test_the_last_epoch_but_one_is_the_last_that_a_client_gets() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 2), 1000))
    assert core.init() == (ErrorCode.NONE, Producer(7, MAX_EPOCH - 1))
    assert core.init() == (ErrorCode.NONE, Producer(1000, 0))


def test_who_goes_on_with_the_last_epoch_gets_a_fresh_id_and_a_retry_the_same() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    last = Producer(7, MAX_EPOCH - 1)
    assert core.init(expected=last) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init(expected=last) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init(expected=Producer(7, MAX_EPOCH - 2)) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_the_epoch_that_is_left_fences_who_has_the_last_and_the_next_gets_a_fresh_id() -> None:
    core = CoreAlone(level=1)
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    core.add(Producer(7, MAX_EPOCH - 1), A0, version=3)
    core.init()
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1001, 0))


def test_where_epochs_grow_fencing_with_the_last_epoch_changes_the_id_at_once() -> None:
    core = CoreAlone(level=2)
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    core.add(Producer(7, MAX_EPOCH - 1), A0)
    core.init()
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 0)
    assert core.init() == (ErrorCode.NONE, Producer(1000, 1))
