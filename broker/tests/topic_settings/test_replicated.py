"""Settings that take several brokers to be seen: on whichever way the topic came by them, and taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import Connect
from broker.tests.three_brokers import Trio
from broker.tests.topic_settings.world import OF_BROKER, OF_TOPIC, alter

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest

StartTrio = Callable[..., Awaitable[Trio]]
WAYS = ["created", "altered", "default altered", "default of the file"]
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
async def start_trio(tmp_path: Path, connect: Connect) -> AsyncIterator[StartTrio]:
    """Topic t on brokers 1 and 2 of three, which came by a setting in some way, or will."""
    started: list[Trio] = []

    async def start(way: str, name: str, value: str) -> Trio:
        trio = Trio(tmp_path, connect, {name: value} if way == "default of the file" else {})
        await trio.start()
        started.append(trio)
        await trio.create([1, 2], **({name.replace(".", "_"): value} if way == "created" else {}))
        return trio

    yield start
    for trio in started:
        await trio.cluster.stop(grace_ms=100)


async def come_by(trio: Trio, way: str, name: str, value: str | None) -> None:
    """None takes it back; the first two ways are over when the topic exists."""
    client = await trio.client(0)
    if way in ("created", "altered"):
        await alter(client, OF_TOPIC, "t", {name: value})
    else:
        await alter(client, OF_BROKER, "", {name: value})


@pytest.mark.parametrize("way", WAYS)
async def test_acks_all_needs_so_many_replicas_in_sync(start_trio: StartTrio, make_batch: Any, way: str) -> None:
    trio = await start_trio(way, MIN_ISR, "2")
    client = await trio.client(1)
    await trio.cluster.kill_broker(2)

    async def error() -> ErrorCode:
        return ErrorCode((await client.produce("t", make_batch(b"v"))).error_code)

    if way in ("altered", "default altered"):
        assert await error() == ErrorCode.NONE
        await come_by(trio, way, MIN_ISR, "2")
    assert await error() == ErrorCode.NOT_ENOUGH_REPLICAS
    # The default of all brokers is not taken back, but set, while there are eligible leader replicas.
    await come_by(trio, way, MIN_ISR, "1" if way.startswith("default") else None)
    assert await error() == ErrorCode.NONE


@pytest.mark.parametrize("way", WAYS)
async def test_who_is_not_in_sync_may_lead(start_trio: StartTrio, make_batch: Any, way: str) -> None:
    trio = await start_trio(way, UNCLEAN, "TRUE")
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.until(lambda: trio.hosted(2).log.log_end_offset == 1)
    await trio.cluster.kill_broker(2)
    await client.produce("t", make_batch(b"only here"))
    await trio.cluster.kill_broker(1)
    await trio.cluster.start_broker(trio.static(2))
    if way in ("altered", "default altered"):
        assert trio.partition.leader == -1
        await come_by(trio, way, UNCLEAN, "TRUE")
    assert (trio.partition.leader, trio.hosted(2).log.log_end_offset) == (2, 1)


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_replicas_are_throttled_as_long_as_the_topic_names_them(start_trio: StartTrio, side: str) -> None:
    name = f"{side}.replication.throttled.replicas"
    trio = await start_trio("created", name, "0:1")

    def throttled() -> list[bool]:
        brokers = [node.broker for _, node in sorted(trio.cluster.nodes.items())]
        return [getattr(broker.replication_quotas, side).is_throttled("t", 0) for broker in brokers]

    seen = [throttled()]
    for value in ("0:1,0:2", "*", None, "0:2"):
        await come_by(trio, "altered", name, value)
        seen.append(throttled())
    await trio.cluster.stop_broker(2)
    await trio.cluster.start_broker(trio.static(2))
    seen.append(throttled())
    client = await trio.client(0)
    await client.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=5000), 6)
    await trio.create([1, 2])
    seen.append(throttled())
    assert seen == [
        [False, True, False],
        [False, True, True],
        [True, True, True],
        [False, False, False],
        [False, False, True],
        [False, False, True],
        [False, False, False],
    ]
