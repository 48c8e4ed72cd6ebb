"""Retention in a running broker: by time, by size and by log start offset, at the interval and on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import Connect
from broker.tests.manual_clock import ManualClock
from broker.tests.three_brokers import Trio, delete_records
from broker.tests.topic_settings.world import World
from log.tests.cleaner_kit import keyed

from odradek_log.log import Log

HOUR_MS = 3_600_000
INTERVAL_MS = 300_000


def look(world: World, way: str) -> None:
    if way == "by order":
        world.retain()
    else:
        world.clock.advance_timeouts(INTERVAL_MS)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("way", ["on schedule", "by order"])
async def test_retention_deletes_by_time_size_and_start_offset(start_node: Any, connect: Connect, way: str) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    world = World(node, await connect(node), clock)
    client = world.client
    topics: dict[str, dict[str, str]] = {
        "time": {"retention_ms": str(HOUR_MS)},
        "size": {"retention_bytes": "2500"},
        "t": {},
        "both": {"retention_ms": str(HOUR_MS), "cleanup_policy": "compact,delete"},
        "compact": {"retention_ms": str(HOUR_MS), "retention_bytes": "0", "cleanup_policy": "compact"},
        "kept": {"retention_ms": "-1"},
        "idle": {"retention_ms": str(HOUR_MS), "retention_bytes": "0", "cleanup_policy": ""},
    }
    logs: dict[str, Log] = {}
    for name, configs in topics.items():
        await client.create_topic(name, **configs)
        logs[name] = node.broker.partitions.get(name, 0).log
    for _ in range(4):
        for name, log in logs.items():
            records = keyed((b"k", b"v" * 1000), timestamp=clock.wall_ms())
            assert (await client.produce(name, bytes(records))).error_code == 0
            log.roll()
        clock.advance_wall(HOUR_MS // 2)
    assert await delete_records(client, 3) == (0, 3)
    seen = [{name: bases(log) for name, log in logs.items()}]
    look(world, way)
    seen.append({name: bases(log) for name, log in logs.items()})
    clock.advance_wall(HOUR_MS)
    look(world, way)
    seen.append({name: bases(log) for name, log in logs.items()})
    every = [0, 1, 2, 3, 4]
    assert seen == [
        dict.fromkeys(logs, every),
        {
            "time": [2, 3, 4],
            "size": [1, 2, 3, 4],
            "t": [3, 4],
            "both": [2, 3, 4],
            "compact": every,
            "kept": every,
            "idle": every,
        },
        {"time": [4], "size": [1, 2, 3, 4], "t": [3, 4], "both": [4], "compact": every, "kept": every, "idle": every},
    ]


async def test_segments_are_kept_after_the_clock_is_moved_back(start_node: Any, connect: Connect) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    world = World(node, await connect(node), clock)
    await world.create({"retention.ms": str(HOUR_MS)})
    await world.produce()
    clock.advance_wall(2 * HOUR_MS)
    clock.restore_wall()
    world.retain()
    assert not world.is_empty


async def test_every_replica_applies_retention_to_its_own_log(
    tmp_path: Path, connect: Connect, make_batch: Any
) -> None:
    trio = Trio(tmp_path, connect)
    await trio.start()
    try:
        await trio.create([1, 2], retention_ms=str(HOUR_MS))
        client = await trio.client(1)
        for value in (b"a", b"b"):
            await client.produce("t", make_batch(value, timestamp=trio.clock.wall_ms()))
            for broker in (1, 2):
                trio.hosted(broker).log.roll()
            trio.clock.advance_wall(HOUR_MS)
        await trio.until(lambda: trio.hosted(2).high_watermark == 2)
        trio.clock.advance_wall(-HOUR_MS // 2)
        trio.cluster.delete_old_segments()
        assert [bases(trio.hosted(broker).log) for broker in (1, 2)] == [[1, 2], [1, 2]]
    finally:
        await trio.cluster.stop(grace_ms=100)


async def test_retention_stops_at_the_high_watermark(tmp_path: Path, connect: Connect, make_batch: Any) -> None:
    trio = Trio(tmp_path, connect)
    await trio.start()
    try:
        await trio.create([1, 2], retention_bytes="0")
        client = await trio.client(1)
        await client.produce("t", make_batch(b"a"))
        trio.hosted(1).log.roll()
        trio.hold_back(1)
        await client.produce("t", make_batch(b"only here"), acks=1)
        trio.hosted(1).log.roll()
        trio.cluster.delete_old_segments()
        assert bases(trio.hosted(1).log) == [1, 2]
        trio.let_go(1)
        await trio.until(lambda: trio.hosted(1).high_watermark == 2)
        trio.cluster.delete_old_segments()
        assert bases(trio.hosted(1).log) == [2]
    finally:
        await trio.cluster.stop(grace_ms=100)
