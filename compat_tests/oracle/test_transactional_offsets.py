"""Offsets committed in transactions: when they become valid, which requests see them as unstable, and their deletion.

Before version 5 the broker does not verify with the transaction coordinator (it is disabled), and the test writes the
markers instead of the coordinator. From version 5 on the broker always does.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.group_requests import become_member
from compat_tests.oracle.pair import Pair, until_coordinated
from compat_tests.oracle.peer import Peer, Var
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
OFFSETS, PARTITIONS = "__consumer_offsets", 4
LAST_WITHOUT_COORDINATOR = 4
EPOCH = 3
_numbers = count()


class Transactions:
    """A group, a topic, and producers that commit the group's offsets of the topic."""

    def __init__(self, pair_for: PairFor, version: int) -> None:
        self.pair = pair_for("TxnOffsetCommit", version)
        self.version = version
        number = next(_numbers)
        self.group = f"transactional-{version}-{number}"
        self.topic = f"read-in-transactions-{version}-{number}"
        self.producer = 70_000 + 10 * number
        topics = [{"name": self.topic, "partition_indexes": [0, 1, 2]}]
        self.compared_topics: list[list[Body] | None] = [topics, None]
        until_coordinated(self.pair, self.group)
        self.pair.create_topic(self.topic, 3)

    def commit(self, *offsets: tuple[int, int], producer: int = 0, epoch: int = EPOCH, **more: Any) -> None:
        """Send TxnOffsetCommit; `offsets` are pairs of partition and offset."""
        body = {
            "transactional_id": self.group,
            "group_id": self.group,
            "producer_id": self.producer + producer,
            "producer_epoch": epoch,
            "topics": [{"name": self.topic, "partitions": [self.partition_row(*each) for each in offsets]}],
        }
        self.pair.ask("TxnOffsetCommit", self.version, {**body, **more})

    def partition_row(self, index: int, offset: int) -> Body:
        cell: Body = {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}
        return {**cell, "committed_leader_epoch": 0} if self.version >= 2 else cell

    def commit_outside_a_transaction(self, index: int, offset: int) -> None:
        cell = {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        body = {"group_id": self.group, "generation_id_or_member_epoch": -1, "member_id": ""}
        self.pair.ask("OffsetCommit", 8, {**body, "topics": [{"name": self.topic, "partitions": [cell]}]})

    def end(self, *, commit: bool, producer: int = 0, epoch: int = EPOCH, coordinator_epoch: int = 0) -> None:
        marker = {
            "producer_id": self.producer + producer,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": OFFSETS, "partition_indexes": [java_hash(self.group) % PARTITIONS]}],
            "coordinator_epoch": coordinator_epoch,
        }
        self.pair.ask("WriteTxnMarkers", 1, {"markers": [marker]})
        self.compare()

    def compare(self) -> None:
        """Compare OffsetFetch of some and of all partitions."""
        for require_stable in (False, True):
            for asked in self.compared_topics:
                group = {"group_id": self.group, "topics": asked}
                self.pair.ask("OffsetFetch", 7, {**group, "require_stable": require_stable})
                self.pair.ask("OffsetFetch", 8, {"groups": [group], "require_stable": require_stable})


def java_hash(text: str) -> int:
    """Return the absolute hash of a Java string, which decides the partition of a group."""
    number = 0
    for char in text:
        number = (31 * number + ord(char)) & 0xFFFF_FFFF
    return number & 0x7FFF_FFFF


@versions_of("TxnOffsetCommit", 0, LAST_WITHOUT_COORDINATOR)
def test_txn_offset_commit(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.compare()
    transactions.commit((0, 5), (1, 6))
    transactions.compare()
    transactions.end(commit=False)
    transactions.commit_outside_a_transaction(0, 1)
    transactions.commit((0, 7), (1, 8))
    transactions.compare()
    transactions.end(commit=True)
    transactions.end(commit=True)


@versions_of("TxnOffsetCommit", 0, LAST_WITHOUT_COORDINATOR)
def test_txn_offset_commit_refused(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.commit((0, 1), (9, 1), (-1, 1))
    transactions.commit((0, 1), topics=[])
    transactions.commit(
        (0, 1),
        topics=[
            {
                "name": "no-such-topic",
                "partitions": [transactions.partition_row(0, 1), transactions.partition_row(1, 1)],
            }
        ],
    )
    transactions.commit((0, 1), group_id="")
    transactions.commit((2, 1), producer_id=-1)
    transactions.compare()
    transactions.commit((0, 1), producer_id=-2)
    for metadata in (None, "é" * 4096, "é" * 4097):
        cell = {**transactions.partition_row(1, 2), "committed_metadata": metadata}
        transactions.commit(
            (0, 1), topics=[{"name": transactions.topic, "partitions": [cell, transactions.partition_row(2, 3)]}]
        )
    # When the log refuses the write, Kafka undoes its pending commit, and from then on lists every offset twice.
    transactions.compared_topics.remove(None)
    transactions.commit((0, 2), epoch=EPOCH - 1)
    transactions.compare()
    transactions.end(commit=True, epoch=EPOCH - 1)
    transactions.end(commit=True, coordinator_epoch=5)
    transactions.commit((0, 9), epoch=EPOCH + 1)
    transactions.end(commit=True, epoch=EPOCH + 1, coordinator_epoch=4)
    transactions.end(commit=True, epoch=EPOCH + 1, coordinator_epoch=5)
    transactions.commit((0, 1), epoch=-1)


@versions_of("TxnOffsetCommit", LAST_WITHOUT_COORDINATOR, LAST_WITHOUT_COORDINATOR)
def test_the_latest_offset_commit_wins(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.commit((0, 1), (1, 1), (2, 1))
    transactions.commit_outside_a_transaction(0, 2)
    transactions.commit((1, 3), producer=1)
    transactions.compare()
    transactions.end(commit=True, producer=1)
    transactions.end(commit=True)
    transactions.commit((0, 4))
    transactions.commit_outside_a_transaction(0, 5)
    transactions.commit((0, 6))
    transactions.end(commit=True)


@versions_of("TxnOffsetCommit", LAST_WITHOUT_COORDINATOR, LAST_WITHOUT_COORDINATOR)
def test_deleted_offsets_are_not_committed_afterwards(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.commit_outside_a_transaction(0, 1)
    transactions.commit((0, 2), (1, 3), (2, 4))
    partitions = [{"partition_index": index} for index in (0, 1)]
    body = {"group_id": transactions.group, "topics": [{"name": transactions.topic, "partitions": partitions}]}
    transactions.pair.ask("OffsetDelete", 0, body)
    transactions.compare()
    transactions.commit((1, 5))
    transactions.end(commit=True)


@versions_of("TxnOffsetCommit", LAST_WITHOUT_COORDINATOR, LAST_WITHOUT_COORDINATOR)
def test_a_group_is_deleted_with_its_pending_offsets(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.commit_outside_a_transaction(0, 1)
    transactions.commit((0, 2), (1, 3))
    transactions.pair.ask("DescribeGroups", 5, {"groups": [transactions.group]})
    transactions.pair.ask("DeleteGroups", 2, {"groups_names": [transactions.group]})
    transactions.compare()
    transactions.end(commit=True)
    transactions.pair.ask("DescribeGroups", 5, {"groups": [transactions.group]})


@versions_of("TxnOffsetCommit", LAST_WITHOUT_COORDINATOR, LAST_WITHOUT_COORDINATOR)
def test_a_deleted_topic_loses_its_pending_offsets(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    transactions.commit_outside_a_transaction(1, 1)
    transactions.commit((0, 2), (1, 3))
    transactions.pair.ask("DeleteTopics", 5, {"topic_names": [transactions.topic], "timeout_ms": 30_000})
    asked = {"group_id": transactions.group, "topics": None}
    for peer in (transactions.pair.kafka, transactions.pair.ours):
        while peer.ask("OffsetFetch", 8, {"groups": [asked], "require_stable": True})["groups"][0]["topics"]:
            pass
    transactions.compare()
    transactions.end(commit=True)


@versions_of("TxnOffsetCommit", 3, LAST_WITHOUT_COORDINATOR)
def test_txn_offset_commit_checks_the_member_that_it_names(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    for generation in (0, 1):
        transactions.commit((0, 1), generation_id=generation)
    transactions.commit((0, 1), member_id="anybody")
    become_member(transactions.pair, transactions.group, sync=False)
    member: Body = {"member_id": Var("member")}
    # A pending rebalance does not matter.
    transactions.commit((0, 2), generation_id=1, **member)
    for generation in (-1, 0, 2):
        transactions.commit((0, 3), generation_id=generation, **member)
    transactions.commit((0, 3), generation_id=1)
    transactions.commit((0, 3), generation_id=1, member_id="no such member")
    transactions.commit((0, 3), generation_id=1, group_instance_id="unknown", **member)
    transactions.commit((0, 4))
    transactions.compare()
    transactions.end(commit=True)


@versions_of("TxnOffsetCommit", LAST_WITHOUT_COORDINATOR + 1)
def test_txn_offset_commit_v5_adds_the_group(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for, version)
    _become_producer(transactions)

    def commit(*offsets: tuple[int, int], epoch: int = 0, **more: Any) -> None:
        transactions.commit(*offsets, epoch=epoch, **{"producer_id": Var("producer"), **more})

    def end(*, commit: bool, epoch: int) -> None:
        body = {"transactional_id": transactions.group, "producer_id": Var("producer"), "producer_epoch": epoch}
        transactions.pair.ask("EndTxn", 5, {**body, "committed": commit})
        for peer in (transactions.pair.kafka, transactions.pair.ours):
            while not _transaction(peer, transactions.group)["transaction_state"].startswith("Complete"):
                pass
        transactions.compare()

    commit((0, 5), (1, 6))
    transactions.pair.ask("DescribeTransactions", 0, {"transactional_ids": [transactions.group]}, _without_start_time)
    transactions.compare()
    for epoch in (-1, 1, 2):
        commit((2, 1), epoch=epoch)
    commit((2, 1), producer_id=Var("another"))
    commit((2, 1), producer_id=-1)
    commit((2, 1), transactional_id="no-such-id")
    commit((2, 1), transactional_id="")
    commit((2, 1), transactional_id="no-such-id", group_id="")
    end(commit=True, epoch=0)
    commit((0, 7))
    commit((0, 8), epoch=1)
    end(commit=False, epoch=1)
    commit((2, 1), epoch=2)
    commit((2, 1), epoch=2, generation_id=3)
    end(commit=True, epoch=2)


def _become_producer(transactions: Transactions) -> None:
    """Get a producer id with epoch 0 and remember it as `producer`; `another` is an id that no producer has."""
    for peer in (transactions.pair.kafka, transactions.pair.ours):
        while peer.ask("FindCoordinator", 3, {"key": transactions.group, "key_type": 1})["error_code"]:
            pass
        body = {"transactional_id": transactions.group, "transaction_timeout_ms": 60_000}
        while (response := peer.ask("InitProducerId", 4, body))["error_code"]:
            pass
        assert response["producer_epoch"] == 0
        peer.remember("producer", response["producer_id"])
        peer.remember("another", response["producer_id"] + 100)


def _transaction(peer: Peer, transactional_id: str) -> Body:
    body = {"transactional_ids": [transactional_id]}
    state: Body = peer.ask("DescribeTransactions", 0, body)["transaction_states"][0]
    return state


def _without_start_time(response: Body) -> Body:
    [state] = response["transaction_states"]
    return {name: value for name, value in state.items() if name != "transaction_start_time_ms"}
