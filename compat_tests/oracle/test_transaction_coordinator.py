"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of a transactional id, step by step: the allowed
requests of each producer in each state, and their visible results.

The tests leave out a broker's AddPartitionsToTxn without transactions, because Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.transactional_client import (
    CONCURRENT_TRANSACTIONS,
    NEWEST_LEVEL,
    Producer,
    TransactionalClient,
    finalize,
)

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
UNKNOWN_PRODUCER_ID = 4242
PRODUCER_FENCED = 90
ABOVE_THE_LIMIT_MS = 15 * 60 * 1000 + 1


@versions_of("InitProducerId", 0, 5)
def test_init_producer_id(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("InitProducerId", version), f"init-{version}-{level}")
    client.compare()
    for timeout_ms in (0, -1, ABOVE_THE_LIMIT_MS):
        client.init(version, timeout_ms=timeout_ms)
    client.init(version, name=None)
    client.init(version, name="")
    client.init(version, name="", timeout_ms=0)
    client.compare()
    client.init(version, timeout_ms=ABOVE_THE_LIMIT_MS - 1)
    client.compare()
    client.init(version)
    client.add(0)
    client.produce()
    assert client.init(version) == CONCURRENT_TRANSACTIONS
    client.compare()
    client.init(version)
    client.compare()


@versions_of("InitProducerId", 3, 5)
def test_init_producer_id_with_a_current_producer_id(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("InitProducerId", version), f"continues-{version}-{level}")

    def init(expected: Producer) -> None:
        client.init(version, expected)
        client.describe()

    # With an unknown transactional id the coordinator accepts any producer id and epoch.
    init(Producer(UNKNOWN_PRODUCER_ID, 17))
    first = client.producer
    for refused in (Producer(UNKNOWN_PRODUCER_ID, 0), first.at(1), first.at(-1)._replace(epoch=-1), Producer(-1, 0)):
        init(refused)
    init(first)
    init(first)
    init(first)
    init(client.producer)
    init(first)
    client.init(version)
    init(first)
    init(client.producer)
    client.add(0)
    open_ = client.producer
    init(open_.at(-1))
    init(open_)
    init(open_)
    init(open_)
    init(client.producer)
    client.add(0)
    client.end(True, version=4)
    init(client.producer)
    client.add(0)
    init(Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch))
    client.compare()


@versions_of("AddPartitionsToTxn", 0, 3)
def test_clients_add_partitions(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("AddPartitionsToTxn", version), f"add-{version}-{level}")
    client.add(0, version=version, by=Producer(UNKNOWN_PRODUCER_ID, 0))
    client.begin()
    for by in (client.producer.at(1), client.producer.at(-1), Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)):
        client.add(0, version=version, by=by)
    client.add(version=version)
    client.compare()
    client.add(0, 9, version=version)
    client.add(0, version=version, topics=[("no-such-topic", [0])])
    client.add(0, version=version, topics=[("__consumer_offsets", [0])])
    client.add(0, version=version, topics=[("__transaction_state", [0])])
    client.add(-1, version=version)
    client.compare()
    client.add(0, 2, version=version)
    client.compare()
    client.add(2, version=version)
    client.add(1, 2, version=version)
    client.compare()
    client.end(True, version=3)
    client.add(0, version=version)
    client.compare()


def test_an_empty_transactional_id(level: int, pair_for: PairFor) -> None:
    pair = pair_for("AddPartitionsToTxn", 3)
    client = TransactionalClient(pair, f"without-a-name-{level}")
    client.id = ""
    unknown = Producer(UNKNOWN_PRODUCER_ID, 0)
    client.add(0, by=unknown)
    client.ask_as_broker(client.transaction(0, by=unknown), client.transaction(0, by=unknown, verify=True))
    client.add_offsets(by=unknown)
    for version in (4, 5):
        client.end(True, version=version, by=unknown)
    pair.ask("DescribeTransactions", 0, {"transactional_ids": [""]})


@versions_of("AddPartitionsToTxn", 4, 5)
def test_brokers_add_and_verify_partitions(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("AddPartitionsToTxn", version), f"add-{version}-{level}")
    client.begin()
    unknown: dict[str, Any] = {"name": "unknown", "by": Producer(UNKNOWN_PRODUCER_ID, 0)}
    for verify in (True, False):
        client.ask_as_broker(client.transaction(0, verify=verify, **unknown), version=version)
    for by in (client.producer.at(1), client.producer.at(-1), Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)):
        client.ask_as_broker(client.transaction(0, verify=True, by=by), version=version)
        client.ask_as_broker(client.transaction(0, by=by), version=version)
    client.ask_as_broker(client.transaction(0, verify=True), version=version)
    client.add(0)
    client.ask_as_broker(client.transaction(0, 1, verify=True), version=version)
    client.ask_as_broker(client.transaction(0, 9, verify=True, topics=[("no-such-topic", [0])]), version=version)
    client.ask_as_broker(client.transaction(0, 9, topics=[("no-such-topic", [0])]), version=version)
    client.ask_as_broker(client.transaction(0, verify=True, topics=[("__consumer_offsets", [0])]), version=version)
    client.ask_as_broker(client.transaction(0, verify=True), client.transaction(0, **unknown), version=version)
    client.end(False, version=4)
    client.ask_as_broker(client.transaction(0, verify=True), version=version)
    if level:
        client.ask_as_broker(client.transaction(1, topics=[("__consumer_offsets", [0])]), version=version)
        client.ask_as_broker(client.transaction(1), version=version)
        client.compare()


@versions_of("AddOffsetsToTxn")
def test_clients_add_offsets(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("AddOffsetsToTxn", version), f"add-offsets-{version}-{level}")
    client.add_offsets(version=version, by=Producer(UNKNOWN_PRODUCER_ID, 0))
    client.begin()
    for by in (client.producer.at(1), client.producer.at(-1), Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)):
        client.add_offsets(version=version, by=by)
    client.add_offsets(version=version, group="")
    client.add_offsets(version=version)
    client.compare()
    client.add_offsets(version=version)
    client.commit_offsets(5, version=2)
    client.compare()
    client.end(True, version=3)
    client.compare()


@versions_of("EndTxn", 0, 4)
def test_old_clients_end_transactions(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("EndTxn", version), f"end-{version}-{level}")
    client.end(True, version=version, by=Producer(UNKNOWN_PRODUCER_ID, 0))
    client.begin()

    def end_in_all_ways() -> None:
        for by in (client.producer.at(1), client.producer.at(-1), Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)):
            for commit in (False, True):
                client.end(commit, version=version, by=by)

    for decision in (True, False):
        end_in_all_ways()
        client.end(True, version=version)
        client.end(False, version=version)
        client.add(0, 1)
        client.produce(0, version=11)
        end_in_all_ways()
        client.compare()
        client.end(decision, version=version)
        client.compare()
        client.end(True, version=version)
        client.end(False, version=version)
    client.compare()


@versions_of("EndTxn", 5, 5)
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_new_clients_end_transactions(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("EndTxn", version), f"end-{version}-{level}")
    client.end(True, by=Producer(UNKNOWN_PRODUCER_ID, 0))
    client.begin()

    def end_in_other_ways(by: Producer) -> None:
        for other in (by.at(1), by.at(-1), by.at(-2), Producer(UNKNOWN_PRODUCER_ID, by.epoch)):
            for commit in (False, True):
                client.end(commit, by=other)

    for decision in (True, False):
        client.end(True)
        client.end(False)  # no transaction is open
        client.compare()
        end_in_other_ways(client.producer)
        client.produce(0)
        client.commit_offsets(7)
        before = client.producer
        end_in_other_ways(before)
        client.compare()
        client.end(decision, by=before)
        client.compare()
        client.end(decision, by=before)
        client.end(not decision, by=before)
        client.end(decision, by=before.at(-1))
        client.end(True)
        client.compare()


def test_a_producer_may_abort_a_transaction_that_timed_out(level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("EndTxn", 5), f"fenced-{level}")
    version = 5 if level == NEWEST_LEVEL else 4
    client.begin()
    zombie = client.producer
    client.produce(0) if level == NEWEST_LEVEL else client.add(0)
    assert client.init() == CONCURRENT_TRANSACTIONS
    client.compare()
    client.end(True, version=version, by=zombie)
    client.end(False, version=version, by=zombie)
    client.describe()
    client.begin()
    successor = client.producer
    for commit in (True, False):
        client.end(commit, version=version, by=zombie)
    client.produce(0, by=zombie)
    client.add(0, by=zombie)
    client.commit_offsets(1, by=zombie, version=4)
    client.produce(1, by=successor) if level == NEWEST_LEVEL else client.add(1, by=successor)
    client.produce(0, by=zombie)
    client.compare()
    client.end(True, version=version, by=successor)
    client.compare()


@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_end_txn_of_a_fenced_v2_client_differs_from_kafkas(level: int, pair_for: PairFor, broker_name: str) -> None:
    if broker_name != "odradek":
        pytest.skip("the difference is between Odradek and Kafka")
    client = TransactionalClient(pair_for("EndTxn", 5), "fenced-by-an-old-client")
    client.begin()
    zombie = client.producer
    client.begin()
    client.add(0)
    client.end(True, version=4)
    body = {
        "transactional_id": client.id,
        "producer_id": zombie.id,
        "producer_epoch": zombie.epoch,
        "committed": True,
    }
    theirs, ours = (peer.ask("EndTxn", 5, body) for peer in (client.pair.kafka, client.pair.ours))
    assert (theirs["error_code"], theirs["producer_epoch"]) == (0, client.producer.epoch)
    assert (ours["error_code"], ours["producer_epoch"]) == (PRODUCER_FENCED, -1)


def test_an_abandoned_transaction_is_aborted(level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("EndTxn", 5), f"abandoned-{level}")
    version = 5 if level == NEWEST_LEVEL else 4
    client.init(timeout_ms=300)
    zombie = client.producer
    client.add(0, 1)
    client.produce(0, version=11)
    client.wait_for_state(until=lambda state: state == "CompleteAbort")
    client.compare()
    client.produce(0, version=11)
    client.add(0)
    for commit in (True, False):
        client.end(commit, version=version, by=zombie)
    client.compare()
    client.init(5, zombie)
    client.begin()
    client.compare()


@pytest.mark.parametrize("level", [0], indirect=True)
def test_transaction_version_0_has_no_v2_clients(level: int, pair_for: PairFor) -> None:
    # Separate transactional ids, because Kafka returns CONCURRENT_TRANSACTIONS for each of them from then on.
    by_producing, by_committing, by_aborting, by_ending = (
        TransactionalClient(pair_for("EndTxn", 5), f"new-at-level-0-by-{how}")
        for how in ("producing", "committing", "aborting", "ending")
    )
    for each in (by_producing, by_committing, by_aborting, by_ending):
        each.begin()
    by_producing.produce(0, version=12)
    by_committing.commit_offsets(1)
    by_aborting.end(False)
    by_ending.add(0)
    by_ending.produce(0, version=12)
    by_ending.end(True)
    for each in (by_producing, by_committing, by_aborting, by_ending):
        each.compare()


@pytest.mark.parametrize("way", [(2, 1, 2), (2, 0, 1), (0, 1, 2), (1, 0, 2)])
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_transactions_continue_when_the_level_changes(level: int, way: tuple[int, ...], pair_for: PairFor) -> None:
    pair = pair_for("EndTxn", 5)
    peers = (pair.kafka, pair.ours)
    client = TransactionalClient(pair, "levels-" + "-".join(map(str, way)))
    for step in way:
        finalize(peers, step)
        client.begin()
        version = 5 if step == NEWEST_LEVEL else 4
        for commit in (True, False):
            client.produce(0) if step == NEWEST_LEVEL else client.add(0)
            client.end(commit, version=version)
            client.compare()
        client.add(0, 1)
    finalize(peers, NEWEST_LEVEL)
    client.begin()
    client.compare()
