"""Transactions in the log of an earlier coordinator: both brokers load the same records, complete the prepared
transactions, and continue when a producer's epochs are exhausted.

The test writes the records itself before both brokers restart, with the client id that may write the topic.
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
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.request_bodies import produce_body
from compat_tests.oracle.schema import Body
from compat_tests.oracle.transactional_client import Producer, TransactionalClient, until_transactions_are_coordinated

pytestmark = pytest.mark.peers
STATE = "__transaction_state"
ADMIN_CLIENT_ID = "__admin_client"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
OPEN = (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
FIRST_ID, PREVIOUS_ID, NEXT_ID = 700_000, 800_000, 900_000
UNKNOWN_PRODUCER = Producer(4242, 3)
LAST = 0x7FFE
"""The last epoch of a producer; the coordinator fences it with one more, the fencing epoch."""

Requests = Callable[[TransactionalClient], None]
CASES: dict[str, tuple[Body, Requests]] = {}


def loads(state: int, epoch: int = LAST, **more: object) -> Callable[[Requests], Requests]:
    """Register a case: a transactional id with this record, and the requests that a function sends after the load. The
    id is the function's name; `record` is the version of the record."""

    def register(requests: Requests) -> Requests:
        CASES[requests.__name__] = {"producer_epoch": epoch, "transaction_status": state, **more}, requests
        return requests

    return register


def _record(name: str, number: int) -> bytes:
    fields = dict(CASES[name][0])
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
    """Both brokers, restarted with the prepared logs."""
    with ExitStack() as stack:
        brokers = (ApacheKafka(KAFKA_4_3, config={**COMMON_CONFIG, **SETTINGS}), new_broker(broker_name, SETTINGS))
        for broker in brokers:
            stack.callback(broker.close)
            broker.start()
        before = Pair(*(Peer(f"broker {n}", each.bootstrap_servers, ADMIN_CLIENT_ID) for n, each in enumerate(brokers)))
        until_transactions_are_coordinated(before, "any")
        for name in CASES:
            before.create_topic(name, 3)
        for peer in (before.kafka, before.ours):
            for number, name in enumerate(CASES):
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


@loads(EMPTY)
def init_after_the_last_epoch(client: TransactionalClient) -> None:
    client.init()
    client.compare()
    client.init()


@loads(EMPTY, LAST + 1)
def init_after_the_fencing_epoch(client: TransactionalClient) -> None:
    client.init()
    client.compare()


@loads(EMPTY)
def init_of_a_producer_id_after_the_last_epoch(client: TransactionalClient) -> None:
    before = client.producer
    for expected in (before, before, client.producer, before.at(-1)):
        client.init(5, expected)
        client.describe()
    client.produce(0)
    client.init(5, before)
    client.compare()


@loads(COMPLETE_COMMIT)
def init_of_another_producer_id(client: TransactionalClient) -> None:
    # For the current id with another epoch Kafka fails (UNKNOWN_SERVER_ERROR, illegal state); we return a fence.
    previous = Producer(PREVIOUS_ID, LAST)
    for expected in (UNKNOWN_PRODUCER, previous.at(-1), previous, previous):
        client.init(5, expected)
        client.describe()


@loads(EMPTY)
def new_client_commits_with_the_last_epoch(client: TransactionalClient) -> None:
    before = client.producer
    client.produce(0)
    client.commit_offsets(1)
    client.end(True)
    client.compare()
    for commit in (True, False):
        client.end(commit, by=before)
    client.end(True, by=before.at(-1))
    client.produce(0, by=before)
    client.produce(0)
    client.compare()
    client.end(True, by=before)
    client.end(True)
    client.compare()


@loads(COMPLETE_ABORT)
def new_client_ends_no_transaction_with_the_last_epoch(client: TransactionalClient) -> None:
    before = client.producer
    client.end(True)
    client.end(False)
    client.compare()
    for commit in (True, False):
        client.end(commit, by=before)
    client.compare()


@loads(EMPTY)
def old_client_commits_with_the_last_epoch(client: TransactionalClient) -> None:
    for commit in (True, False):
        client.add(0)
        client.produce(0, version=11)
        client.end(commit, version=4)
        client.compare()
    client.init()
    client.compare()


@loads(ONGOING)
def init_fences_the_last_epoch(client: TransactionalClient) -> None:
    before = client.producer
    client.init()
    client.compare()
    for commit in (True, False):
        client.end(commit, by=before)
    client.init(5, before)
    client.init()
    client.compare()


@loads(ONGOING, LAST + 1)
def init_aborts_with_the_fencing_epoch(client: TransactionalClient) -> None:
    client.init()
    client.compare()
    client.init()
    client.compare()


@loads(ONGOING, transaction_timeout_ms=1_000)
def timeout_aborts_with_the_last_epoch(client: TransactionalClient) -> None:
    client.wait_for_state(until=lambda state: state == "CompleteAbort")
    client.compare()
    for commit in (True, False):
        client.end(commit)
    client.compare()


@loads(ONGOING, 7, transaction_timeout_ms=1_000)
def timeout_aborts(client: TransactionalClient) -> None:
    client.wait_for_state(until=lambda state: state == "CompleteAbort")
    client.compare()


@loads(PREPARE_COMMIT, 7)
def prepared_commit(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_ABORT, 7)
def prepared_abort(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_COMMIT, 7, client_transaction_version=0)
def prepared_commit_of_an_old_client(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_ABORT, 7, record=0)
def prepared_abort_at_level_0(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_COMMIT, LAST + 1, next_producer_id=NEXT_ID)
def prepared_commit_with_the_fencing_epoch(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_ABORT, 7, transaction_partitions=[])
def prepared_abort_without_partitions(client: TransactionalClient) -> None:
    _compare_completed(client)


@loads(PREPARE_COMMIT, 7, transaction_partitions=[{"topic": "nowhere", "partition_ids": [0]}])
def prepared_commit_of_a_deleted_topic(client: TransactionalClient) -> None:
    _compare_completed(client)


def _compare_completed(client: TransactionalClient) -> None:
    before = client.producer
    client.wait_for_state()
    client.compare()
    for by in (before, before.at(-1)):
        for commit in (True, False):
            client.end(commit, by=by)
    client.produce(0, by=before)
    client.init()
    client.compare()


@loads(ONGOING, 3)
def ongoing(client: TransactionalClient) -> None:
    client.compare()
    client.produce(1)
    client.end(True)
    client.compare()


@loads(ONGOING, 3, record=0)
def ongoing_at_level_0(client: TransactionalClient) -> None:
    client.compare()
    client.add(1)
    client.end(True, version=4)
    client.compare()


@pytest.mark.parametrize("name", list(CASES))
def test_load_the_state_of_another_coordinator(name: str, pair: Pair) -> None:
    client = TransactionalClient(pair, name)
    client.producer = Producer(FIRST_ID + list(CASES).index(name), CASES[name][0]["producer_epoch"])
    CASES[name][1](client)
