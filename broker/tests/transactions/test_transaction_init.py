"""InitProducerId with a transactional id: the new producer, and fenced ones."""

from __future__ import annotations

import pytest
from broker.tests.transactions.core_alone import A0, A1, MAX_EPOCH, CoreAlone

from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_broker.transactions.core.transaction_step import TransactionSettings
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.init_producer_id import InitProducerIdRequest

NOBODY = Producer(-1, -1)


def test_a_new_transactional_id_gets_a_fresh_producer_with_epoch_0() -> None:
    core = CoreAlone()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 0))
    assert core.shard.transactions["t"] == TransactionMetadata(
        Producer(1000, 0), 60_000, updated_ms=core.now.wall_ms, previous_producer_id=1000
    )


def test_transactional_ids_have_different_producer_ids() -> None:
    core = CoreAlone()
    assert core.init("t") == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init("u") == (ErrorCode.NONE, Producer(1001, 0))


def test_initializing_again_bumps_the_epoch_and_sets_the_timeout() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(timeout_ms=5) == (ErrorCode.NONE, Producer(1000, 1))
    assert core.shard.transactions["t"].timeout_ms == 5


@pytest.mark.parametrize("commit", [True, False])
def test_initializing_after_a_transaction_bumps_the_epoch(commit: bool) -> None:
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
    response = core.init(timeout_ms=900_000)
    assert response is not None
    assert response[0] == ErrorCode.NONE


def test_the_maximum_of_timeouts_is_a_setting() -> None:
    core = CoreAlone(settings=TransactionSettings(max_timeout_ms=10))
    assert core.init(timeout_ms=11) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY)


@pytest.mark.parametrize("expected", [Producer(-1, 0), Producer(5, -1)])
def test_an_epoch_without_a_producer_id_is_an_invalid_request(expected: Producer) -> None:
    assert CoreAlone().init(expected=expected) == (ErrorCode.INVALID_REQUEST, NOBODY)


def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    assert CoreAlone().init("") == (ErrorCode.INVALID_REQUEST, NOBODY)


def test_init_without_a_fresh_producer_id_is_concurrent() -> None:
    core = CoreAlone()
    core.apply(core.shard.init_producer_id(InitProducerIdRequest("t", 1000), 5, None, "x", core.now))
    assert core.outcome("x") == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    assert core.shard.transactions == {}


# -- fencing


def test_v1_init_aborts_an_open_transaction_and_fences() -> None:
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


def test_v2_init_aborts_an_open_transaction_with_one_bump() -> None:
    core = CoreAlone(level=2)
    zombie = core.begun(A0)
    assert core.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    work = core.markers[0]
    assert (work.producer, work.commit, work.transaction_version) == (Producer(1000, 1), False, 2)
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1000, 2))
    assert core.add(zombie, A0) == ErrorCode.PRODUCER_FENCED
    assert core.end(zombie) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_the_clusters_version_decides_how_init_aborts() -> None:
    core = CoreAlone(level=2)
    response = core.init()
    assert response is not None
    core.add(response[1], A0, version=3)
    core.init()
    assert core.markers[0].transaction_version == 2
    core.shard.transaction_version = 0
    core.write_markers()
    assert core.state() is TransactionState.COMPLETE_ABORT


# -- KIP-360: going on with the identity one had


def test_a_producer_that_continues_gets_the_next_epoch() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.NONE, Producer(1000, 1))


def test_a_retry_of_continuing_gets_the_same_epoch() -> None:
    core = CoreAlone()
    core.init()
    core.init(expected=Producer(1000, 0))
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.NONE, Producer(1000, 1))


def test_a_fenced_producer_cannot_continue() -> None:
    core = CoreAlone()
    core.init()
    core.init(expected=Producer(1000, 0))
    core.init()
    assert core.init(expected=Producer(1000, 0)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert core.init(expected=Producer(1000, 1)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert core.init(expected=Producer(1000, 2)) == (ErrorCode.NONE, Producer(1000, 3))


def test_another_producer_id_cannot_continue() -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(999, 0)) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_continuing_with_an_expired_id_gets_a_fresh_producer() -> None:
    core = CoreAlone()
    assert core.init(expected=Producer(77, 12)) == (ErrorCode.NONE, Producer(1000, 0))


def test_continuing_aborts_an_open_transaction() -> None:
    core = CoreAlone()
    producer = core.begun(A0, A1)
    assert core.init(expected=producer) == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    core.write_markers()
    # As in Kafka the abort has taken the epoch of the producer, unless the retry has the previous one.
    assert core.init(expected=producer) == (ErrorCode.NONE, Producer(1000, 1))


def test_v1_continuing_after_an_abort_is_fenced() -> None:
    core = CoreAlone(level=1)
    producer = core.begun(A0)
    core.init(expected=producer)
    core.write_markers()
    assert core.init(expected=producer) == (ErrorCode.PRODUCER_FENCED, NOBODY)


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_of_init_get_invalid_producer_epoch(version: int, error: ErrorCode) -> None:
    core = CoreAlone()
    core.init()
    assert core.init(expected=Producer(1000, 7), version=version) == (error, NOBODY)


# -- when epochs are used up


def test_the_epoch_before_the_maximum_is_the_last_of_clients() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 2), 1000))
    assert core.init() == (ErrorCode.NONE, Producer(7, MAX_EPOCH - 1))
    assert core.init() == (ErrorCode.NONE, Producer(1000, 0))


def test_continuing_with_the_last_epoch_gets_a_fresh_producer_id() -> None:
    core = CoreAlone()
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    last = Producer(7, MAX_EPOCH - 1)
    assert core.init(expected=last) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init(expected=last) == (ErrorCode.NONE, Producer(1000, 0))
    assert core.init(expected=Producer(7, MAX_EPOCH - 2)) == (ErrorCode.PRODUCER_FENCED, NOBODY)


def test_v1_the_maximum_epoch_fences_the_last_client_epoch() -> None:
    core = CoreAlone(level=1)
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    core.add(Producer(7, MAX_EPOCH - 1), A0, version=3)
    core.init()
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.init() == (ErrorCode.NONE, Producer(1001, 0))


def test_v2_fencing_the_last_epoch_changes_the_producer_id() -> None:
    core = CoreAlone(level=2)
    core.put(TransactionMetadata(Producer(7, MAX_EPOCH - 1), 1000))
    core.add(Producer(7, MAX_EPOCH - 1), A0)
    core.init()
    assert core.markers[0].producer == Producer(7, MAX_EPOCH)
    core.write_markers()
    assert core.shard.transactions["t"].producer == Producer(1000, 0)
    assert core.init() == (ErrorCode.NONE, Producer(1000, 1))
