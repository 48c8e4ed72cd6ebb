"""Producer ids of a broker: requests that find the block used up share one allocation."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from odradek_broker.metadata.producer_ids import Block, NoProducerIdsError, ProducerIds


class Allocations:
    """A controller that responds when the test completes `response`."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.response: asyncio.Future[Block] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> Block:
        self.asked.set()
        return await self.response


async def test_requests_that_wait_together_share_one_block() -> None:
    allocations = Allocations()
    ids = ProducerIds(allocations)
    waiting = [asyncio.ensure_future(ids.next()) for _ in range(3)]
    await allocations.asked.wait()
    allocations.response.set_result(Block(1000, 3))
    assert sorted(await asyncio.gather(*waiting)) == [1000, 1001, 1002]


async def test_every_request_that_waits_gets_the_error() -> None:
    allocations = Allocations()
    ids = ProducerIds(allocations)
    waiting = [asyncio.ensure_future(ids.next()) for _ in range(2)]
    await allocations.asked.wait()
    allocations.response.set_exception(NoProducerIdsError("NETWORK_EXCEPTION"))
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in errors] == ["NETWORK_EXCEPTION"] * 2


async def test_an_allocation_error_without_clients_is_not_reported() -> None:
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    allocations = Allocations()
    ids = ProducerIds(allocations)
    waiting = asyncio.ensure_future(ids.next())
    await allocations.asked.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    allocations.response.set_exception(NoProducerIdsError("NETWORK_EXCEPTION"))
    with pytest.raises(NoProducerIdsError):
        await allocations.response
    again = asyncio.ensure_future(ids.next())
    errors = await asyncio.gather(again, return_exceptions=True)
    assert [str(error) for error in errors] == ["NETWORK_EXCEPTION"]
    del errors, again, waiting
    gc.collect()
    assert lost == []


async def test_a_broker_that_stops_waits_for_no_block() -> None:
    allocations = Allocations()
    ids = ProducerIds(allocations)
    waiting = asyncio.ensure_future(ids.next())
    await allocations.asked.wait()
    ids.close()
    async with asyncio.timeout(10):
        with pytest.raises(NoProducerIdsError, match="the broker stops"):
            await waiting
    assert allocations.response.cancelled()
