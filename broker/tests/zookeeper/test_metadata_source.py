"""The metadata source of ZooKeeper mode: a delta that a listener applies in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
import structlog

from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_broker.zookeeper.metadata_source import ZooKeeperSource
from odradek_controller.image import ClusterImage, MetadataDelta


async def test_a_cancelled_request_does_not_stop_a_delta_half_way() -> None:
    source = ZooKeeperSource(ControlRequestAdapter(ClusterImage(), 1), asyncio.sleep, structlog.get_logger("test"))
    turns: list[int] = []

    async def apply() -> None:
        for turn in range(5):
            turns.append(turn)
            await asyncio.sleep(0)

    def listen(delta: MetadataDelta) -> Awaitable[None] | None:
        return apply() if delta.complete else None

    source.subscribe(listen)
    request = asyncio.ensure_future(source.publish(MetadataDelta.between(ClusterImage(), ClusterImage())))
    while not turns:
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert turns == list(range(5))
