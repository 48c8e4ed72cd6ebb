"""Transactions that another coordinator has left in the log: both brokers load the same records, complete the prepared
transactions, and continue when a producer's epochs are exhausted.

The test writes the records itself, as the only client that may write the topic, before both brokers restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from odradek_peers import KAFKA_4_3, ApacheKafka

from compat_tests.brokers import COMMON_CONFIG, new_broker
from compat_tests.oracle import schema
from compat_tests.oracle.batches import batch
from compat_tests.oracle.coordinated import Coordinated, Producer, until_transactions_are_coordinated
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.request_bodies import produce_body
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
STATE = "__transaction_state"
MAY_WRITE_IT = "__admin_client"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
OPEN = (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
FIRST_ID, PREVIOUS_ID, NEXT_ID = 700_000, 800_000, 900_000
STRANGER = Producer(4242, 3)
LAST = 0x7FFE
"""The last epoch of a producer; the coordinator uses one more to fence it."""

Went = Callable[[Coordinated], None]
LEFT: dict[str, tuple[Body, Went]] = {}


def left(state: int, epoch: int = LAST, **more: object) -> Callable[[Went], Went]:
    """Register a case: a transactional id with this record, named after the function that then uses it. `record` is the
    version of the record."""

    def taken_up(went: Went) -> Went:
        LEFT[went.__name__] = {"producer_epoch": epoch, "transaction_status": state, **more}, went
        return went

    return taken_up


def _record(name: str, number: int) -> bytes:
    fields = dict(LEFT[name][0])
    version, state = fields.pop("record", 1), fields["transaction_status"]
    now_ms = time.time_ns() // 1_000_000
    value: Body = {
        "producer_id": FIRST_ID + number,
        "transaction_timeout_ms": 600_000,
        "transaction_partitions": None if state == EMPTY else [{"topic": name, "partition_ids": [0]}] * (state in OPEN),
        "transaction_last_update_timestamp_ms": now_ms,
        "transaction_start_timestamp_ms": -1 if state == EMPTY else now_ms - 10_000,
        **fields,
    }
    if version:
        value = {"previous_producer_id": PREVIOUS_ID, "client_transaction_version": 2, **value}
    key = b"\0\0" + schema.encode("TransactionLogKey", 0, {"transactional_id": name}, schema.KAFKA_4_3)
    data = version.to_bytes(2, "big") + schema.encode("TransactionLogValue", version, value, schema.KAFKA_4_3)
    return batch([data], key=key, timestamp=now_ms)


@pytest.fixture(scope="module")
def pair(broker_name: str) -> Iterator[Pair]:
    """Both brokers, restarted on the prepared logs."""
    with ExitStack() as stack:
        brokers = (ApacheKafka(KAFKA_4_3, config={**COMMON_CONFIG, **SETTINGS}), new_broker(broker_name, SETTINGS))
        for broker in brokers:
            stack.callback(broker.close)
            broker.start()
        before = Pair(*(Peer(f"broker {n}", each.bootstrap_servers, MAY_WRITE_IT) for n, each in enumerate(brokers)))
        until_transactions_are_coordinated(before, "any")
        for name in LEFT:
            before.create_topic(name, 3)
        for peer in (before.kafka, before.ours):
            for number, name in enumerate(LEFT):
                body = produce_body(9, STATE, None, (0, _record(name, number)))
                response = peer.ask("Produce", 9, {**body, "transactional_id": None})
                assert response["responses"][0]["partition_responses"][0]["error_code"] == 0, response
            peer.close()
        for broker in brokers:
            broker.stop()
            broker.start()
        after = Pair(*(Peer(f"broker {n}", each.bootstrap_servers) for n, each in enumerate(brokers)))
        yield after
        for peer in (after.kafka, after.ours):
            peer.close()


@left(EMPTY)
def asks_for_an_epoch_too_many(mine: Coordinated) -> None:
    mine.init()
    mine.look()
    mine.init()


@left(EMPTY, LAST + 1)
def asks_for_an_epoch_after_the_very_last(mine: Coordinated) -> None:
    mine.init()
    mine.look()


@left(EMPTY)
def goes_on_with_an_epoch_too_many(mine: Coordinated) -> None:
    before = mine.producer
    for expected in (before, before, mine.producer, before.at(-1)):
        mine.init(5, expected)
        mine.describe()
    mine.produce(0)
    mine.init(5, before)
    mine.look()


@left(COMPLETE_COMMIT)
def goes_on_with_another_identity(mine: Coordinated) -> None:
    # For its own id with another epoch Kafka fails with an illegal state (UNKNOWN_SERVER_ERROR); we return a fence.
    previous = Producer(PREVIOUS_ID, LAST)
    for expected in (STRANGER, previous.at(-1), previous, previous):
        mine.init(5, expected)
        mine.describe()


@left(EMPTY)
def new_client_commits_with_the_last_epoch(mine: Coordinated) -> None:
    before = mine.producer
    mine.produce(0)
    mine.commit_offsets(1)
    mine.end(True)
    mine.look()
    for commit in (True, False):
        mine.end(commit, by=before)
    mine.end(True, by=before.at(-1))
    mine.produce(0, by=before)
    mine.produce(0)
    mine.look()
    mine.end(True, by=before)
    mine.end(True)
    mine.look()


@left(COMPLETE_ABORT)
def new_client_aborts_nothing_with_the_last_epoch(mine: Coordinated) -> None:
    before = mine.producer
    mine.end(True)
    mine.end(False)
    mine.look()
    for commit in (True, False):
        mine.end(commit, by=before)
    mine.look()


@left(EMPTY)
def old_client_commits_with_the_last_epoch(mine: Coordinated) -> None:
    for commit in (True, False):
        mine.add(0)
        mine.produce(0, version=11)
        mine.end(commit, version=4)
        mine.look()
    mine.init()
    mine.look()


@left(ONGOING)
def is_fenced_with_the_last_epoch(mine: Coordinated) -> None:
    before = mine.producer
    mine.init()
    mine.look()
    for commit in (True, False):
        mine.end(commit, by=before)
    mine.init(5, before)
    mine.init()
    mine.look()


@left(ONGOING, LAST + 1)
def is_fenced_with_the_very_last_epoch(mine: Coordinated) -> None:
    mine.init()
    mine.look()
    mine.init()
    mine.look()


@left(ONGOING, transaction_timeout_ms=1_000)
def was_abandoned_with_the_last_epoch(mine: Coordinated) -> None:
    mine.settle(until=lambda state: state == "CompleteAbort")
    mine.look()
    for commit in (True, False):
        mine.end(commit)
    mine.look()


@left(ONGOING, 7, transaction_timeout_ms=1_000)
def was_abandoned(mine: Coordinated) -> None:
    mine.settle(until=lambda state: state == "CompleteAbort")
    mine.look()


@left(PREPARE_COMMIT, 7)
def was_about_to_commit(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_ABORT, 7)
def was_about_to_abort(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_COMMIT, 7, client_transaction_version=0)
def was_about_to_commit_as_an_old_client(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_ABORT, 7, record=0)
def was_about_to_abort_at_level_0(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_COMMIT, LAST + 1, next_producer_id=NEXT_ID)
def was_about_to_commit_with_the_last_epoch(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_ABORT, 7, transaction_partitions=[])
def was_about_to_abort_nothing(mine: Coordinated) -> None:
    _goes_on(mine)


@left(PREPARE_COMMIT, 7, transaction_partitions=[{"topic": "nowhere", "partition_ids": [0]}])
def was_about_to_commit_what_has_been_deleted(mine: Coordinated) -> None:
    _goes_on(mine)


def _goes_on(mine: Coordinated) -> None:
    before = mine.producer
    mine.settle()
    mine.look()
    for by in (before, before.at(-1)):
        for commit in (True, False):
            mine.end(commit, by=by)
    mine.produce(0, by=before)
    mine.init()
    mine.look()


@left(ONGOING, 3)
def is_in_the_middle(mine: Coordinated) -> None:
    mine.look()
    mine.produce(1)
    mine.end(True)
    mine.look()


@left(ONGOING, 3, record=0)
def is_in_the_middle_at_level_0(mine: Coordinated) -> None:
    mine.look()
    mine.add(1)
    mine.end(True, version=4)
    mine.look()


@pytest.mark.parametrize("name", list(LEFT))
def test_load_the_state_of_another_coordinator(name: str, pair: Pair) -> None:
    mine = Coordinated(pair, name)
    mine.producer = Producer(FIRST_ID + list(LEFT).index(name), LEFT[name][0]["producer_epoch"])
    LEFT[name][1](mine)
