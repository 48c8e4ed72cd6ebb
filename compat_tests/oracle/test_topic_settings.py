"""The ends of segments by a topic's settings, and the responses to remote storage settings without remote storage."""

import time
from collections.abc import Callable

import pytest

from compat_tests.oracle.batches import TIME, batch
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
_TOPIC, _SET = 2, 0
_PARTITIONS = 9
# Kafka's first retention check is half a minute after its start.
_RETENTION_S = 90.0
# Later checks are twice a second, one partition after the other.
_SETTLED_S = 2.0


def _alter(pair: Pair, topic: str, name: str, value: str) -> None:
    change = {"name": name, "config_operation": _SET, "value": value}
    asked = {"resource_type": _TOPIC, "resource_name": topic, "configs": [change]}
    pair.ask("IncrementalAlterConfigs", 1, {"resources": [asked]})


def _starts(peer: Peer, topic: str) -> list[int]:
    """Return the log start offset of each partition."""
    asked = [{"partition_index": index, "timestamp": -2} for index in range(_PARTITIONS)]
    response = peer.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]})
    found = {each["partition_index"]: each["offset"] for each in response["topics"][0]["partitions"]}
    return [found[index] for index in range(_PARTITIONS)]


def _starts_after_retention(peer: Peer, topic: str) -> list[int]:
    """Return the log start offsets after retention has deleted segments and no longer changes them."""
    deadline = time.monotonic() + _RETENTION_S
    seen, since = _starts(peer, topic), time.monotonic()
    while not any(seen) or time.monotonic() - since < _SETTLED_S:
        assert time.monotonic() < deadline, (peer.name, topic, seen)
        time.sleep(0.1)
        now = _starts(peer, topic)
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


@pytest.mark.parametrize(
    ("settings", "size", "apart_ms"),
    [
        ({"segment.index.bytes": "36", "index.interval.bytes": "0"}, 10, 1),
        ({"segment.index.bytes": "36", "index.interval.bytes": "0"}, 10, 0),
        ({"segment.index.bytes": "24", "index.interval.bytes": "200"}, 150, 1),
        ({"segment.index.bytes": "12", "index.interval.bytes": "0"}, 10, 1),
        ({"segment.ms": "1000"}, 10, 400),
        ({"segment.bytes": "1048576"}, 300_000, 1),
        ({"internal.segment.bytes": "500"}, 100, 1),
    ],
    ids=["index", "index-of-one-time", "index-of-some", "tiny-index", "time", "bytes", "internal-bytes"],
)
def test_segments_roll_at_the_same_records_as_kafkas(
    request: pytest.FixtureRequest, settings: dict[str, str], size: int, apart_ms: int, pair_for: PairFor
) -> None:
    """The log start offsets show the segments: retention leaves the last one of partitions with 1, 2, 3 … batches."""
    pair = pair_for("Produce", 9)
    name = f"segments-{request.node.callspec.id}"
    pair.create_topic(name, _PARTITIONS, settings)
    for count in range(_PARTITIONS):
        partitions = [
            {"index": index, "records": batch([b"v" * size], timestamp=TIME + count * apart_ms)}
            for index in range(count, _PARTITIONS)
        ]
        body = {"acks": -1, "timeout_ms": 9000, "topic_data": [{"name": name, "partition_data": partitions}]}
        pair.ask("Produce", 9, body)
    _alter(pair, name, "retention.bytes", "1")
    theirs = _starts_after_retention(pair.kafka, name)
    assert _starts_after_retention(pair.ours, name) == theirs


def test_remote_storage_settings_without_remote_storage(pair_for: PairFor) -> None:
    pair = pair_for("IncrementalAlterConfigs", 1)
    pair.create_topic("remote")
    for name, values in {
        "remote.storage.enable": ("true", "false", "TRUE"),
        "remote.log.copy.disable": ("true", "maybe"),
        "remote.log.delete.on.disable": ("true",),
        "local.retention.ms": ("1000", "-1", "-2", "-3", "9223372036854775807"),
        "local.retention.bytes": ("1000", "-1", "-3"),
        "retention.ms": ("10",),
        "cleanup.policy": ("compact",),
        "internal.segment.bytes": ("1000", "0", "few"),
    }.items():
        for value in values:
            _alter(pair, "remote", name, value)


@pytest.mark.parametrize("policy", ["", "delete", "compact", "compact,delete"])
def test_delete_records_by_cleanup_policy(policy: str, pair_for: PairFor) -> None:
    pair = pair_for("DeleteRecords", 2)
    name = f"policy-{policy.replace(',', '-') or 'none'}"
    pair.create_topic(name, 1, {"cleanup.policy": policy})
    part = {"index": 0, "records": batch([b"v"] * 5, key=b"k")}
    pair.ask("Produce", 9, {"acks": -1, "timeout_ms": 9000, "topic_data": [{"name": name, "partition_data": [part]}]})
    for offset in (2, -1, 9):
        asked = {"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}
        pair.ask("DeleteRecords", 2, {"topics": [asked], "timeout_ms": 9000})


def test_without_a_cleanup_policy_retention_deletes_nothing(pair_for: PairFor) -> None:
    pair = pair_for("Produce", 9)
    kept, lost = "kept-without-policy", "lost-by-policy"
    for name, policy in ((kept, ""), (lost, "delete")):
        pair.create_topic(name, _PARTITIONS, {"cleanup.policy": policy})
        for _ in range(2):
            parts = [{"index": index, "records": batch([b"v"])} for index in range(_PARTITIONS)]
            topic = {"name": name, "partition_data": parts}
            pair.ask("Produce", 9, {"acks": -1, "timeout_ms": 9000, "topic_data": [topic]})
        _alter(pair, name, "retention.bytes", "0")
        _alter(pair, name, "retention.ms", "1")
    for peer in (pair.kafka, pair.ours):
        assert _starts_after_retention(peer, lost) == [2] * _PARTITIONS
        assert _starts(peer, kept) == [0] * _PARTITIONS
