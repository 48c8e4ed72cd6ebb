"""Producer ids, taken one by one from blocks that the controller allocates (Kafka's RPCProducerIdManager).

Owns the current block. Requests that find the block used up share one allocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple


class NoProducerIdsError(Exception):
    """The controller cannot allocate a block: there is no controller, or it has not registered this broker yet."""


class Block(NamedTuple):
    """`size` ids from `first` on."""

    first: int
    size: int


class ProducerIds:
    """The producer ids of one broker."""

    __slots__ = ("_allocate", "_allocation", "_end", "_next")

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        """`allocate` may raise NoProducerIdsError."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Future[None] | None = None

    def next_of_block(self) -> int | None:
        """Return the next id of the block; None if the block is used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def next_or_request_block(self) -> int | None:
        """Return the next id of the block; if it is used up, request another block and return None. For callers that
        retry and cannot wait."""
        found = self.next_of_block()
        if found is None:
            self._request_block()
        return found

    async def next(self) -> int:
        """Return the next id, after requesting a block if needed. Raises NoProducerIdsError."""
        while (found := self.next_of_block()) is None:
            # Not `shield`: from Python 3.13 on it reports the error of an allocation whose request was cancelled.
            allocation = self._request_block()
            await asyncio.wait([allocation])
            if allocation.cancelled():
                raise NoProducerIdsError("the broker stops")
            allocation.result()
        return found

    def close(self) -> None:
        """End the request for a block, if there is one: requests that wait for it get NoProducerIdsError."""
        if self._allocation is not None:
            self._allocation.cancel()

    def _request_block(self) -> asyncio.Future[None]:
        if self._allocation is None:
            self._allocation = asyncio.ensure_future(self._fill())
            # The requests that wait get the error. If all their clients have disconnected, no request reads the error,
            # and asyncio would report it as lost.
            self._allocation.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._allocation

    async def _fill(self) -> None:
        try:
            block = await self._allocate()
            self._next, self._end = block.first, block.first + block.size
        finally:
            self._allocation = None
