"""A Fetch with fewer than `min_bytes` completes before `max_wait_ms` for the same reasons as in Kafka.

`max_wait_ms` is longer than the timeout of a peer, so that every response here is an early one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.oracle.batches import batch, summary
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Var
from compat_tests.oracle.request_bodies import fetch_body, produce_body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
VERSION = 12
LONG_MS = 60_000
LARGE = 1 << 20


def append(pair: Pair, topic: str, topic_id: Var, size: int, *, partition: int = 0, producer: int = -1) -> None:
    written = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    records = batch([b"v" * size], producer=written, transactional=producer >= 0)
    body = produce_body(9, topic, topic_id, (partition, records))
    pair.ask("Produce", 9, {**body, "transactional_id": topic if producer >= 0 else None})


def test_a_fetch_of_an_older_segment_does_not_wait(pair_for: PairFor) -> None:
    pair = pair_for("Fetch", VERSION)
    topic_id = pair.create_topic("delayed-segments", configs={"segment.bytes": "1048576"})
    for _ in range(3):
        append(pair, "delayed-segments", topic_id, 400_000)
    for offset in (0, 1):
        body = fetch_body(VERSION, "delayed-segments", topic_id, {"fetch_offset": offset})
        pair.ask("Fetch", VERSION, {**body, "max_wait_ms": LONG_MS, "min_bytes": LARGE}, summary)


def test_read_committed_min_bytes_counts_to_the_last_stable_offset(pair_for: PairFor) -> None:
    pair = pair_for("Fetch", VERSION)
    topic_id = pair.create_topic("delayed-stable", configs={"segment.bytes": "1048576"})
    append(pair, "delayed-stable", topic_id, 900_000)
    append(pair, "delayed-stable", topic_id, 900_000, producer=77)
    for offset, min_bytes in ((0, LARGE), (2, LARGE), (2, 1)):
        body = fetch_body(VERSION, "delayed-stable", topic_id, {"fetch_offset": offset}, isolation_level=1)
        pair.ask("Fetch", VERSION, {**body, "max_wait_ms": LONG_MS, "min_bytes": min_bytes}, summary)


@pytest.mark.parametrize(
    ("wrong", "limits"),
    [
        ({"fetch_offset": 9}, {}),
        ({"current_leader_epoch": 9}, {}),
        ({"fetch_offset": 1, "last_fetched_epoch": 5}, {}),
        ({}, {"min_bytes": 100_000, "max_bytes": 100_000}),
        ({"partition_max_bytes": 10_000}, {"min_bytes": 50_000}),
        ({}, {"min_bytes": LARGE, "max_bytes": 20_000}),
    ],
    ids=[
        "out of range",
        "unknown epoch",
        "diverging",
        "no room",
        "first batch comes whole",
        "max_bytes below min_bytes",
    ],
)
def test_errors_and_size_limits_complete_a_fetch(
    pair_for: PairFor, wrong: dict[str, object], limits: dict[str, object]
) -> None:
    pair = pair_for("Fetch", VERSION)
    topic_id = pair.create_topic("delayed-errors", 2)
    for partition in (0, 1):
        append(pair, "delayed-errors", topic_id, 60_000, partition=partition)
    start = 0 if limits else 1
    for body in (
        fetch_body(VERSION, "delayed-errors", topic_id, {"partition": 1, **wrong}),
        fetch_body(VERSION, "delayed-errors", topic_id, {"fetch_offset": start}, {"partition": 1, **wrong}),
    ):
        if limits.get("max_bytes") == 100_000 and len(body["topics"][0]["partitions"]) == 1:
            continue  # one partition alone has fewer than `min_bytes`
        pair.ask("Fetch", VERSION, {**body, "max_wait_ms": LONG_MS, "min_bytes": LARGE, **limits}, summary)


def test_a_fetch_without_readable_partitions_does_not_wait(pair_for: PairFor) -> None:
    pair = pair_for("Fetch", VERSION)
    body = fetch_body(VERSION, "delayed-nowhere", None, {})
    pair.ask("Fetch", VERSION, {**body, "max_wait_ms": LONG_MS, "min_bytes": LARGE})
