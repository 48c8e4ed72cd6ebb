"""The comparison of both clusters after each step of a script, and the parts of the responses that may differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.oracle.batches import TIME
from compat_tests.oracle.schema import Body
from compat_tests.zookeeper.sides import Side, Sides

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_TIMES = (_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, TIME, TIME + 2, TIME + 10_000)
_OWN_FIELDS = frozenset({"port", "timestamp", "topic_id", "id", "endpoints"})


def compare_all(sides: Sides, *topics: str, groups: Sequence[str] = (), without: Sequence[str] = ()) -> None:
    """Compare the responses of every broker about these topics, groups and reassignments, and the znodes except for the
    fields `without`."""
    sides.repeat_until_equal(lambda: assert_same_znodes(sides, without))
    for broker in sorted(sides.ours.running):
        _cluster(sides, broker, topics)
        _log_dirs(sides, broker, topics)
        for topic in topics:
            for index, partition in enumerate(sides.ours.partitions(topic)):
                # Over ZooKeeper Kafka's broker does not apply an epoch without a leader: its responses about epochs
                # then depend on when it was started.
                epoch = int(partition["leader_epoch"]) if partition["leader_id"] >= 0 else None
                _partition(sides, broker, topic, index, epoch)
        for group in groups:
            _group(sides, broker, group, topics)
        sides.ask_until_equal(broker, "ListPartitionReassignments", 0, {"topics": None, "timeout_ms": 30_000})


def _cluster(sides: Sides, broker: int, topics: Sequence[str]) -> None:
    asked = [{"name": topic, "topic_id": bytes(16)} for topic in (*topics, "no-such-topic")]
    known = {"topics": asked[:-1], "allow_auto_topic_creation": False}
    sides.ask_until_equal(
        broker, "Metadata", 12, {"topics": asked, "allow_auto_topic_creation": False}, _without_addresses
    )
    sides.ask_until_equal(broker, "Metadata", 1, known, _without_addresses)
    sides.ask_until_equal(
        broker, "DescribeCluster", 1, {"include_cluster_authorized_operations": True}, _without_addresses
    )


def _without_addresses(response: Body) -> Body:
    """Replace addresses and random ids, and sort each ISR."""
    for each in response["brokers"]:
        each["host"], each["port"] = "<host>", "<port>"
    if "cluster_id" in response:
        response["cluster_id"] = bool(response["cluster_id"])
    for topic in response.get("topics", ()):
        topic["topic_id"] = any(topic.get("topic_id", b""))
        for partition in topic["partitions"]:
            partition["isr_nodes"].sort()
    return response


def _log_dirs(sides: Sides, broker: int, topics: Sequence[str]) -> None:
    asked = [{"topic": topic, "partitions": [*range(4)]} for topic in topics]
    sides.ask_until_equal(broker, "DescribeLogDirs", 4, {"topics": asked})


def _partition(sides: Sides, broker: int, topic: str, index: int, epoch: int | None) -> None:
    for current in (-1,) if epoch is None else sorted({-1, epoch - 1, epoch, epoch + 1}):
        for time in _TIMES if current == -1 else (_LATEST,):
            wanted = {"partition_index": index, "current_leader_epoch": current, "timestamp": time}
            body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wanted]}]}
            sides.ask_until_equal(broker, "ListOffsets", 8, body)
        for asked in range((epoch or 0) + 2):
            wanted = {"partition": index, "current_leader_epoch": current, "leader_epoch": asked}
            sides.ask_until_equal(
                broker,
                "OffsetForLeaderEpoch",
                4,
                {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]},
            )
        for last in sorted({-1, 0, epoch or 0}):
            _fetch(sides, broker, topic, index, current, 0, last)
        _fetch(sides, broker, topic, index, current, 1_000, 0)


def _fetch(sides: Sides, broker: int, topic: str, index: int, current: int, offset: int, last: int) -> None:
    wanted = {
        "partition": index,
        "current_leader_epoch": current,
        "fetch_offset": offset,
        "last_fetched_epoch": last,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    body: Body = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    sides.ask_until_equal(broker, "Fetch", 12, body)


def _group(sides: Sides, broker: int, group: str, topics: Sequence[str]) -> None:
    sides.ask_until_equal(
        broker, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]}, _without_coordinator_address
    )
    asked = [{"name": topic, "partition_indexes": [0, 1]} for topic in topics]
    sides.ask_until_equal(
        broker, "OffsetFetch", 8, {"groups": [{"group_id": group, "topics": asked}], "require_stable": False}
    )  # fmt: skip


def _without_coordinator_address(response: Body) -> Body:
    for each in response["coordinators"]:
        each["port"] = "<port>" if each["port"] >= 0 else each["port"]
    return response


def assert_same_znodes(sides: Sides, without: Sequence[str] = ()) -> None:
    """Assert that both clusters have the same znodes, except for random values, addresses and the fields `without`."""
    own_fields = _OWN_FIELDS.union(without)
    theirs, ours = (_comparable(side, own_fields) for side in sides.both)
    unequal = [
        f"{path}: Kafka {theirs.get(path)}, ours {ours.get(path)}"
        for path in sorted(theirs.keys() | ours.keys())
        if theirs.get(path) != ours.get(path)
    ]
    assert not unequal, "\n".join(unequal)


def _comparable(side: Side, own_fields: frozenset[str]) -> dict[str, Any]:
    return {
        path: "<own>" if path.rpartition("/")[2] in own_fields else _without(content, own_fields)
        for path, content in side.znodes().items()
    }


def _without(value: Any, own_fields: frozenset[str]) -> Any:
    """Replace the fields that are the side's own, and sort each ISR."""
    if isinstance(value, dict):
        return {
            name: "<own>" if name in own_fields else sorted(each) if name == "isr" else _without(each, own_fields)
            for name, each in value.items()
        }
    return value
