"""Reassignments, elections, log directories and unregistered brokers, in a cluster of one broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
BROKER = 1
UNKNOWN_BROKER = 9


@versions_of("AlterPartitionReassignments")
def test_alter_partition_reassignments(version: int, pair_for: PairFor) -> None:
    pair = pair_for("AlterPartitionReassignments", version)
    name = f"moved-{version}"
    pair.create_topic(name, 2)

    def ask(replicas: list[int] | None, *, topic: str = name, partition: int = 0) -> None:
        wanted: Body = {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}
        pair.ask("AlterPartitionReassignments", version, {"timeout_ms": 20_000, "topics": [wanted]})

    ask([BROKER])
    ask(None)
    ask([])
    ask([UNKNOWN_BROKER])
    ask([BROKER, BROKER])
    ask([BROKER], partition=7)
    ask([BROKER], topic="no-such-topic")
    pair.ask("AlterPartitionReassignments", version, {"timeout_ms": 20_000, "topics": []})


@versions_of("ListPartitionReassignments")
def test_list_partition_reassignments(version: int, pair_for: PairFor) -> None:
    pair = pair_for("ListPartitionReassignments", version)
    pair.create_topic("at-rest", 2)

    for topics in (None, [], [{"name": "at-rest", "partition_indexes": [0, 7]}]):
        pair.ask("ListPartitionReassignments", version, {"timeout_ms": 20_000, "topics": topics})


@versions_of("ElectLeaders")
def test_elect_leaders(version: int, pair_for: PairFor) -> None:
    pair = pair_for("ElectLeaders", version)
    pair.create_topic("led", 2)

    def ask(topics: list[Body] | None, election_type: int = 0) -> None:
        body: Body = {"topic_partitions": topics, "timeout_ms": 20_000}
        if version >= 1:
            body["election_type"] = election_type
        pair.ask("ElectLeaders", version, body)

    ask([{"topic": "led", "partitions": [0, 1, 7]}])
    ask([{"topic": "no-such-topic", "partitions": [0]}])
    if version >= 1:
        ask([{"topic": "led", "partitions": [0]}], election_type=1)


@pytest.mark.parametrize("timeout_ms", [0, -1])
@versions_of("ElectLeaders")
def test_elect_leaders_without_time(version: int, timeout_ms: int, pair_for: PairFor) -> None:
    pair = pair_for("ElectLeaders", version)
    pair.create_topic("led", 2)
    for topics in ([{"topic": "led", "partitions": [0, 7]}], [{"topic": "led", "partitions": []}], [], None):
        pair.ask("ElectLeaders", version, {"topic_partitions": topics, "timeout_ms": timeout_ms})


@pytest.mark.parametrize("timeout_ms", [0, -1])
@versions_of("AlterPartitionReassignments")
def test_alter_partition_reassignments_without_time(version: int, timeout_ms: int, pair_for: PairFor) -> None:
    pair = pair_for("AlterPartitionReassignments", version)
    pair.create_topic("at-rest", 2)
    moves = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 7, "replicas": None}]
    for topics in ([{"name": "at-rest", "partitions": moves}], [{"name": "at-rest", "partitions": []}], []):
        pair.ask("AlterPartitionReassignments", version, {"timeout_ms": timeout_ms, "topics": topics})


@versions_of("AlterReplicaLogDirs")
def test_alter_replica_log_dirs(version: int, pair_for: PairFor) -> None:
    pair = pair_for("AlterReplicaLogDirs", version)
    pair.create_topic("placed", 1)

    for topic in ("placed", "no-such-topic"):
        wanted = {"path": "/no/such/folder", "topics": [{"name": topic, "partitions": [0]}]}
        pair.ask("AlterReplicaLogDirs", version, {"dirs": [wanted]})


@versions_of("UnregisterBroker")
def test_unregister_broker(version: int, pair_for: PairFor) -> None:
    pair = pair_for("UnregisterBroker", version)

    pair.ask("UnregisterBroker", version, {"broker_id": UNKNOWN_BROKER})
