"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of a transactional id, step by step: the allowed
requests of each producer in each state, and their visible results.

The tests leave out a broker's AddPartitionsToTxn without transactions, because Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.coordinated import CONCURRENT_TRANSACTIONS, NEWEST_LEVEL, Coordinated, Producer, finalize
from compat_tests.oracle.pair import Pair

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
STRANGER = 4242
PRODUCER_FENCED = 90
ABOVE_THE_LIMIT_MS = 15 * 60 * 1000 + 1


@versions_of("InitProducerId", 0, 5)
def test_init_producer_id(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("InitProducerId", version), f"init-{version}-{level}")
    mine.look()
    for timeout_ms in (0, -1, ABOVE_THE_LIMIT_MS):
        mine.init(version, timeout_ms=timeout_ms)
    mine.init(version, name=None)
    mine.init(version, name="")
    mine.init(version, name="", timeout_ms=0)
    mine.look()
    mine.init(version, timeout_ms=ABOVE_THE_LIMIT_MS - 1)
    mine.look()
    mine.init(version)
    mine.add(0)
    mine.produce()
    assert mine.init(version) == CONCURRENT_TRANSACTIONS
    mine.look()
    mine.init(version)
    mine.look()


@versions_of("InitProducerId", 3, 5)
def test_init_producer_id_with_a_current_producer_id(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("InitProducerId", version), f"goes-on-{version}-{level}")

    def again(expected: Producer) -> None:
        mine.init(version, expected)
        mine.describe()

    # With an unknown transactional id the coordinator accepts any producer id and epoch.
    again(Producer(STRANGER, 17))
    first = mine.producer
    for refused in (Producer(STRANGER, 0), first.at(1), first.at(-1)._replace(epoch=-1), Producer(-1, 0)):
        again(refused)
    again(first)
    again(first)
    again(first)
    again(mine.producer)
    again(first)
    mine.init(version)
    again(first)
    again(mine.producer)
    mine.add(0)
    open_ = mine.producer
    again(open_.at(-1))
    again(open_)
    again(open_)
    again(open_)
    again(mine.producer)
    mine.add(0)
    mine.end(True, version=4)
    again(mine.producer)
    mine.add(0)
    again(Producer(STRANGER, mine.producer.epoch))
    mine.look()


@versions_of("AddPartitionsToTxn", 0, 3)
def test_clients_add_partitions(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("AddPartitionsToTxn", version), f"add-{version}-{level}")
    mine.add(0, version=version, by=Producer(STRANGER, 0))
    mine.begin()
    for by in (mine.producer.at(1), mine.producer.at(-1), Producer(STRANGER, mine.producer.epoch)):
        mine.add(0, version=version, by=by)
    mine.add(version=version)
    mine.look()
    mine.add(0, 9, version=version)
    mine.add(0, version=version, places=[("no-such-topic", [0])])
    mine.add(0, version=version, places=[("__consumer_offsets", [0])])
    mine.add(0, version=version, places=[("__transaction_state", [0])])
    mine.add(-1, version=version)
    mine.look()
    mine.add(0, 2, version=version)
    mine.look()
    mine.add(2, version=version)
    mine.add(1, 2, version=version)
    mine.look()
    mine.end(True, version=3)
    mine.add(0, version=version)
    mine.look()


def test_an_empty_transactional_id(level: int, pair_for: PairFor) -> None:
    pair = pair_for("AddPartitionsToTxn", 3)
    mine = Coordinated(pair, f"without-a-name-{level}")
    mine.id = ""
    stranger = Producer(STRANGER, 0)
    mine.add(0, by=stranger)
    mine.ask_as_broker(mine.added(0, by=stranger), mine.added(0, by=stranger, verify=True))
    mine.add_offsets(by=stranger)
    for version in (4, 5):
        mine.end(True, version=version, by=stranger)
    pair.ask("DescribeTransactions", 0, {"transactional_ids": [""]})


@versions_of("AddPartitionsToTxn", 4, 5)
def test_brokers_add_and_verify_partitions(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("AddPartitionsToTxn", version), f"add-{version}-{level}")
    mine.begin()
    stranger: dict[str, Any] = {"name": "unknown", "by": Producer(STRANGER, 0)}
    for verify in (True, False):
        mine.ask_as_broker(mine.added(0, verify=verify, **stranger), version=version)
    for by in (mine.producer.at(1), mine.producer.at(-1), Producer(STRANGER, mine.producer.epoch)):
        mine.ask_as_broker(mine.added(0, verify=True, by=by), version=version)
        mine.ask_as_broker(mine.added(0, by=by), version=version)
    mine.ask_as_broker(mine.added(0, verify=True), version=version)
    mine.add(0)
    mine.ask_as_broker(mine.added(0, 1, verify=True), version=version)
    mine.ask_as_broker(mine.added(0, 9, verify=True, places=[("no-such-topic", [0])]), version=version)
    mine.ask_as_broker(mine.added(0, 9, places=[("no-such-topic", [0])]), version=version)
    mine.ask_as_broker(mine.added(0, verify=True, places=[("__consumer_offsets", [0])]), version=version)
    mine.ask_as_broker(mine.added(0, verify=True), mine.added(0, **stranger), version=version)
    mine.end(False, version=4)
    mine.ask_as_broker(mine.added(0, verify=True), version=version)
    if level:
        mine.ask_as_broker(mine.added(1, places=[("__consumer_offsets", [0])]), version=version)
        mine.ask_as_broker(mine.added(1), version=version)
        mine.look()


@versions_of("AddOffsetsToTxn")
def test_clients_add_offsets(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("AddOffsetsToTxn", version), f"add-offsets-{version}-{level}")
    mine.add_offsets(version=version, by=Producer(STRANGER, 0))
    mine.begin()
    for by in (mine.producer.at(1), mine.producer.at(-1), Producer(STRANGER, mine.producer.epoch)):
        mine.add_offsets(version=version, by=by)
    mine.add_offsets(version=version, group="")
    mine.add_offsets(version=version)
    mine.look()
    mine.add_offsets(version=version)
    mine.commit_offsets(5, version=2)
    mine.look()
    mine.end(True, version=3)
    mine.look()


@versions_of("EndTxn", 0, 4)
def test_old_clients_end_transactions(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("EndTxn", version), f"end-{version}-{level}")
    mine.end(True, version=version, by=Producer(STRANGER, 0))
    mine.begin()

    def end_in_all_ways() -> None:
        for by in (mine.producer.at(1), mine.producer.at(-1), Producer(STRANGER, mine.producer.epoch)):
            for commit in (False, True):
                mine.end(commit, version=version, by=by)

    for decision in (True, False):
        end_in_all_ways()
        mine.end(True, version=version)
        mine.end(False, version=version)
        mine.add(0, 1)
        mine.produce(0, version=11)
        end_in_all_ways()
        mine.look()
        mine.end(decision, version=version)
        mine.look()
        mine.end(True, version=version)
        mine.end(False, version=version)
    mine.look()


@versions_of("EndTxn", 5, 5)
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_new_clients_end_transactions(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("EndTxn", version), f"end-{version}-{level}")
    mine.end(True, by=Producer(STRANGER, 0))
    mine.begin()

    def end_in_other_ways(by: Producer) -> None:
        for other in (by.at(1), by.at(-1), by.at(-2), Producer(STRANGER, by.epoch)):
            for commit in (False, True):
                mine.end(commit, by=other)

    for decision in (True, False):
        mine.end(True)
        mine.end(False)  # what was not begun
        mine.look()
        end_in_other_ways(mine.producer)
        mine.produce(0)
        mine.commit_offsets(7)
        before = mine.producer
        end_in_other_ways(before)
        mine.look()
        mine.end(decision, by=before)
        mine.look()
        mine.end(decision, by=before)
        mine.end(not decision, by=before)
        mine.end(decision, by=before.at(-1))
        mine.end(True)
        mine.look()


def test_a_producer_may_abort_a_transaction_that_timed_out(level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("EndTxn", 5), f"fenced-{level}")
    version = 5 if level == NEWEST_LEVEL else 4
    mine.begin()
    zombie = mine.producer
    mine.produce(0) if level == NEWEST_LEVEL else mine.add(0)
    assert mine.init() == CONCURRENT_TRANSACTIONS
    mine.look()
    mine.end(True, version=version, by=zombie)
    mine.end(False, version=version, by=zombie)
    mine.describe()
    mine.begin()
    successor = mine.producer
    for commit in (True, False):
        mine.end(commit, version=version, by=zombie)
    mine.produce(0, by=zombie)
    mine.add(0, by=zombie)
    mine.commit_offsets(1, by=zombie, version=4)
    mine.produce(1, by=successor) if level == NEWEST_LEVEL else mine.add(1, by=successor)
    mine.produce(0, by=zombie)
    mine.look()
    mine.end(True, version=version, by=successor)
    mine.look()


@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_end_txn_of_a_fenced_v2_client_differs_from_kafkas(level: int, pair_for: PairFor, broker_name: str) -> None:
    if broker_name != "odradek":
        pytest.skip("of Odradek")
    mine = Coordinated(pair_for("EndTxn", 5), "outdated-by-an-old-client")
    mine.begin()
    zombie = mine.producer
    mine.begin()
    mine.add(0)
    mine.end(True, version=4)
    body = {
        "transactional_id": mine.id,
        "producer_id": zombie.id,
        "producer_epoch": zombie.epoch,
        "committed": True,
    }
    theirs, ours = (peer.ask("EndTxn", 5, body) for peer in (mine.pair.kafka, mine.pair.ours))
    assert (theirs["error_code"], theirs["producer_epoch"]) == (0, mine.producer.epoch)
    assert (ours["error_code"], ours["producer_epoch"]) == (PRODUCER_FENCED, -1)


def test_an_abandoned_transaction_is_aborted(level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("EndTxn", 5), f"abandoned-{level}")
    version = 5 if level == NEWEST_LEVEL else 4
    mine.init(timeout_ms=300)
    zombie = mine.producer
    mine.add(0, 1)
    mine.produce(0, version=11)
    mine.settle(until=lambda state: state == "CompleteAbort")
    mine.look()
    mine.produce(0, version=11)
    mine.add(0)
    for commit in (True, False):
        mine.end(commit, version=version, by=zombie)
    mine.look()
    mine.init(5, zombie)
    mine.begin()
    mine.look()


@pytest.mark.parametrize("level", [0], indirect=True)
def test_transaction_version_0_has_no_v2_clients(level: int, pair_for: PairFor) -> None:
    # Separate transactional ids, because Kafka returns CONCURRENT_TRANSACTIONS for each of them from then on.
    by_producing, by_committing, by_aborting, by_ending = (
        Coordinated(pair_for("EndTxn", 5), f"new-at-level-0-by-{how}")
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
        each.look()


@pytest.mark.parametrize("way", [(2, 1, 2), (2, 0, 1), (0, 1, 2), (1, 0, 2)])
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_transactions_continue_when_the_level_changes(level: int, way: tuple[int, ...], pair_for: PairFor) -> None:
    pair = pair_for("EndTxn", 5)
    peers = (pair.kafka, pair.ours)
    mine = Coordinated(pair, "levels-" + "-".join(map(str, way)))
    for step in way:
        finalize(peers, step)
        mine.begin()
        version = 5 if step == NEWEST_LEVEL else 4
        for commit in (True, False):
            mine.produce(0) if step == NEWEST_LEVEL else mine.add(0)
            mine.end(commit, version=version)
            mine.look()
        mine.add(0, 1)
    finalize(peers, NEWEST_LEVEL)
    mine.begin()
    mine.look()
