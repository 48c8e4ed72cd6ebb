"""Producer ids of this broker: handed out one by one from blocks that the controller allocates.

Owns the present block. Several requests that find it used up share one allocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple


class NoProducerIdsError(Exception):
    """The controller gives no ids now: there is none, or it does not take this broker for one of its own yet."""


class Block(NamedTuple):
    """Ids from `first` on, `size` of them."""

    first: int
    size: int


class ProducerIds:
    __slots__ = ("_allocate", "_allocation", "_end", "_next")

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        """`allocate` may raise NoProducerIdsError."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Future[None] | None = None

    def next_of_block(self) -> int | None:
        """The next id of the block; None when it is used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def next_or_request_block(self) -> int | None:
        """The same for who cannot wait but comes again: then there may be one."""
        found = self.next_of_block()
        if found is None:
            self._begin_to_fill()
        return found

    async def next(self) -> int:
        """The next id, after asking the controller for a block if need be. Raises NoProducerIdsError."""
        while (found := self.next_of_block()) is None:
            # Not `shield`: from Python 3.13 on it reports the error of an allocation whose request was cancelled.
            allocation = self._begin_to_fill()
            await asyncio.wait([allocation])
            allocation.result()
        return found

    def _begin_to_fill(self) -> asyncio.Future[None]:
        if self._allocation is None:
            self._allocation = asyncio.ensure_future(self._fill())
            # The requests that wait get the error. All of their clients may go away before the controller answers:
            # then no request reads the error, and asyncio would report it as lost.
            self._allocation.add_done_callback(lambda filling: filling.cancelled() or filling.exception())
        return self._allocation

    async def _fill(self) -> None:
        try:
            block = await self._allocate()
            self._next, self._end = block.first, block.first + block.size
        finally:
            self._allocation = None
