"""The metadata source of ZooKeeper mode: a delta that a listener applies in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_broker.zookeeper.metadata_source import ZooKeeperSource
from odradek_controller.image import ClusterImage, MetadataDelta, TopicImage
from odradek_wire.uuid import Uuid


async def test_a_cancelled_request_does_not_stop_a_delta_half_way() -> None:
    source = ZooKeeperSource(ControlRequestAdapter(ClusterImage(), 1), asyncio.sleep, structlog.get_logger("test"))
    turns: list[int] = []

    async def apply() -> AsyncIterator[None]:
        for turn in range(5):
            turns.append(turn)
            await asyncio.sleep(0)
            yield

    def listen(delta: MetadataDelta) -> AsyncIterator[None] | None:
        return apply() if delta.complete else None

    source.subscribe(listen)
    request = asyncio.ensure_future(source.publish(MetadataDelta.between(ClusterImage(), ClusterImage())))
    while not turns:
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert turns == list(range(5))


async def test_a_request_that_waits_for_a_deletion_ends_after_a_cancelled_one() -> None:
    topic = TopicImage(Uuid(b"1" * 16), "t", ())
    before = ClusterImage(topics={"t": topic}, topics_by_id={topic.id: topic})
    adapter = ControlRequestAdapter(before, 1)
    never = asyncio.Event()

    async def sleep(_: int) -> None:
        await never.wait()

    source = ZooKeeperSource(adapter, sleep, structlog.get_logger("test"))
    applying = asyncio.Event()

    async def apply() -> AsyncIterator[None]:
        applying.set()
        await asyncio.sleep(0)
        yield

    source.subscribe(lambda delta: apply() if delta.complete else None)
    waiting = asyncio.ensure_future(source.until_removed([topic.id], 5000))
    await asyncio.sleep(0)  # it waits for a delta now
    adapter.image = ClusterImage()
    control_request = asyncio.ensure_future(source.publish(MetadataDelta.between(before, adapter.image)))
    await applying.wait()
    control_request.cancel()
    async with asyncio.timeout(10):
        await waiting
    assert control_request.cancelled()
