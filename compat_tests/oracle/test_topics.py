"""CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs."""

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
UNKNOWN_ID = bytes(range(16))


def _without_ids(response: Body) -> Body:
    """Drop the topic ids, which are each broker's own."""
    for topic in response["topics"]:
        if topic.get("topic_id", bytes(16)) != bytes(16):
            topic["topic_id"] = "<chosen>"
    return response


@versions_of("CreateTopics")
def test_create_topics(version: int, pair_for: PairFor) -> None:
    pair = pair_for("CreateTopics", version)

    def ask(*topics: Body, **more: Any) -> None:
        asked = [{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics]
        body: Body = {"topics": asked, "timeout_ms": 20_000, **more}
        pair.ask("CreateTopics", version, body, lambda response: _sorted_configs(_without_ids(response)))

    name = f"created-{version}"
    ask({"name": name, "num_partitions": 3})
    ask({"name": name})
    ask({"name": f"{name}-a"}, {"name": f"{name}-b", "num_partitions": 2})
    ask(
        {
            "name": f"{name}-configured",
            "configs": [_config("retention.ms", "60000"), _config("cleanup.policy", "compact")],
        }
    )
    ask({"name": f"{name}-by-hand", "num_partitions": -1, "replication_factor": -1, "assignments": _assigned([1], [1])})

    for wrong in ("", ".", "..", "a b", "a/b", "x" * 250, "ü"):
        ask({"name": wrong})
    ask({"name": f"{name}-x.y"})
    ask({"name": f"{name}-x_y"})
    ask({"name": f"{name}-zero", "num_partitions": 0})
    ask({"name": f"{name}-minus", "num_partitions": -2})
    ask({"name": f"{name}-replicas", "replication_factor": 2})
    ask({"name": f"{name}-no-replicas", "replication_factor": 0})
    ask({"name": f"{name}-unknown-config", "configs": [_config("no.such.config", "1")]})
    ask({"name": f"{name}-wrong-config", "configs": [_config("retention.ms", "soon")]})
    ask({"name": f"{name}-wrong-policy", "configs": [_config("cleanup.policy", "keep")]})
    ask({"name": f"{name}-null-config", "configs": [_config("retention.ms", None)]})
    by_hand: Body = {"num_partitions": -1, "replication_factor": -1}
    ask({"name": f"{name}-unknown-broker", **by_hand, "assignments": _assigned([9])})
    ask({"name": f"{name}-broker-twice", **by_hand, "assignments": _assigned([1, 1])})
    ask({"name": f"{name}-gap", **by_hand, "assignments": [{"partition_index": 1, "broker_ids": [1]}]})
    ask({"name": f"{name}-empty", **by_hand, "assignments": [{"partition_index": 0, "broker_ids": []}]})
    ask({"name": f"{name}-both", "assignments": _assigned([1])})
    ask({"name": f"{name}-twice"}, {"name": f"{name}-twice"})
    if version >= 1:
        ask({"name": f"{name}-dry"}, validate_only=True)
        ask({"name": name}, validate_only=True)
    if version >= 4:
        ask({"name": f"{name}-defaults", "num_partitions": -1, "replication_factor": -1})
    ask()
    pair.ask("Metadata", 8, {"topics": [{"name": f"{name}-{each}"} for each in ("a", "b", "by-hand", "twice", "dry")],
                             "allow_auto_topic_creation": False}, _topics_only)  # fmt: skip


def _topics_only(response: Body) -> object:
    return response["topics"]


def _sorted_configs(response: Body) -> Body:
    """Keep only the settings that a test has set; the tests of DescribeConfigs compare the others."""
    for topic in response["topics"]:
        if topic.get("configs"):
            topic["configs"] = [each for each in topic["configs"] if each["name"] in ("retention.ms", "cleanup.policy")]
    return response


def _config(name: str, value: str | None) -> Body:
    return {"name": name, "value": value}


def _assigned(*replicas: list[int]) -> list[Body]:
    return [{"partition_index": index, "broker_ids": brokers} for index, brokers in enumerate(replicas)]


@versions_of("DeleteTopics")
def test_delete_topics(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DeleteTopics", version)
    name = f"deleted-{version}"
    pair.create_topic(name, 2)
    topic_id = pair.create_topic(f"{name}-by-id")

    def ask(*names: str) -> None:
        asked: Body = {"topics": [{"name": each} for each in names]} if version >= 6 else {"topic_names": [*names]}
        pair.ask("DeleteTopics", version, {**asked, "timeout_ms": 20_000})

    ask(name)
    ask(name)
    ask("no-such-topic", "not a name")
    ask()
    ask("twice", "twice")
    if version >= 6:
        for asked in (
            [{"name": None, "topic_id": topic_id}],
            [{"name": None, "topic_id": topic_id}],
            [{"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": None}],
            [{"name": "named-and", "topic_id": UNKNOWN_ID}],
        ):
            pair.ask("DeleteTopics", version, {"topics": asked, "timeout_ms": 20_000})


@versions_of("CreatePartitions")
def test_create_partitions(version: int, pair_for: PairFor) -> None:
    pair = pair_for("CreatePartitions", version)
    name = f"grown-{version}"
    pair.create_topic(name, 2)

    def ask(count: int, *, topic: str = name, assignments: list[Body] | None = None, only: bool = False) -> None:
        asked = {"name": topic, "count": count, "assignments": assignments}
        pair.ask("CreatePartitions", version, {"topics": [asked], "timeout_ms": 20_000, "validate_only": only})

    ask(3, only=True)
    ask(3)
    ask(3)
    ask(2)
    ask(0)
    ask(-1)
    ask(5, topic="no-such-topic")
    ask(4, assignments=[{"broker_ids": [1]}])
    ask(5, assignments=[{"broker_ids": [9]}])
    ask(5, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
    ask(5, assignments=[{"broker_ids": [1, 1]}])
    ask(5, assignments=[{"broker_ids": []}])
    twice = [{"name": name, "count": 7, "assignments": None}, {"name": name, "count": 8, "assignments": None}]
    pair.ask("CreatePartitions", version, {"topics": twice, "timeout_ms": 20_000})
    pair.ask("Metadata", 8, {"topics": [{"name": name}]}, _topics_only)


NO_TIME = pytest.mark.parametrize("timeout_ms", [0, -1])
ZERO_ID = bytes(16)


@NO_TIME
@versions_of("CreateTopics")
def test_create_topics_without_time(version: int, timeout_ms: int, pair_for: PairFor) -> None:
    pair = pair_for("CreateTopics", version)
    name = f"hurried-{version}"
    pair.create_topic(name)

    def ask(*names: str, **more: Any) -> None:
        topics = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in names]
        pair.ask("CreateTopics", version, {"topics": topics, "timeout_ms": timeout_ms, **more})

    for more in ({}, {"validate_only": True})[: 2 if version >= 1 else 1]:
        ask(f"{name}-new", **more)
        ask(name, **more)
        ask("a b", **more)
        ask(f"{name}-new", name, "a b", "twice", "twice", **more)
        ask("twice", "twice", **more)
        ask("__cluster_metadata", **more)
        ask(**more)
    asked = {"topics": [{"name": f"{name}-new"}], "allow_auto_topic_creation": False}
    pair.ask("Metadata", 8, asked, _topics_only)


@NO_TIME
@versions_of("DeleteTopics")
def test_delete_topics_without_time(version: int, timeout_ms: int, pair_for: PairFor) -> None:
    pair = pair_for("DeleteTopics", version)
    name = f"kept-{version}"
    topic_id = pair.create_topic(name)

    def ask(*names: str) -> None:
        asked: Body = {"topics": [{"name": each} for each in names]} if version >= 6 else {"topic_names": [*names]}
        pair.ask("DeleteTopics", version, {**asked, "timeout_ms": timeout_ms})

    ask(name)
    ask("no-such-topic")
    ask(name, "no-such-topic", "twice", "twice")
    ask("twice", "twice")
    ask()
    if version >= 6:
        for topics in (
            [{"name": None, "topic_id": topic_id}],
            [{"name": None, "topic_id": topic_id}] * 2,
            [{"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": None, "topic_id": UNKNOWN_ID}] * 2,
            [{"name": None, "topic_id": ZERO_ID}],
            [{"name": name, "topic_id": topic_id}],
            [{"name": name}, {"name": None, "topic_id": ZERO_ID}],
        ):
            pair.ask("DeleteTopics", version, {"topics": topics, "timeout_ms": timeout_ms})
    pair.ask("Metadata", 8, {"topics": [{"name": name}]}, _topics_only)


@NO_TIME
@versions_of("CreatePartitions")
def test_create_partitions_without_time(version: int, timeout_ms: int, pair_for: PairFor) -> None:
    pair = pair_for("CreatePartitions", version)
    name = f"small-{version}"
    pair.create_topic(name)
    for only in (False, True):
        for asked in ([name], ["no-such-topic"], [name, "twice", "twice"], ["twice", "twice"], []):
            topics = [{"name": each, "count": 2, "assignments": None} for each in asked]
            body = {"topics": topics, "timeout_ms": timeout_ms, "validate_only": only}
            pair.ask("CreatePartitions", version, body)
    pair.ask("Metadata", 8, {"topics": [{"name": name}]}, _topics_only)


@versions_of("DescribeLogDirs")
def test_describe_log_dirs(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeLogDirs", version)
    pair.create_topic("in-a-folder", 2)

    pair.ask("DescribeLogDirs", version, {"topics": [{"topic": "in-a-folder", "partitions": [0, 1]}]})
    pair.ask("DescribeLogDirs", version, {"topics": [{"topic": "in-a-folder", "partitions": [1, 7]}]})
    pair.ask("DescribeLogDirs", version, {"topics": [{"topic": "no-such-topic", "partitions": [0]}]})
    pair.ask("DescribeLogDirs", version, {"topics": []})
