"""Requests with many elements: decoded on a thread, handled in slices, their responses encoded on the thread.

Owns the limits that keep such a request from delaying other clients and from exhausting the memory: the thread, the
number of elements in memory, and `odradek.request.elements.max`, above which the connection closes. Kafka, which has
threads for requests, has no such limit. Leaves the division into slices to the API (`apis.slices`), and requests with
few elements and much work to their handlers (`apis.slices.run_in_slices`).

An element is an entry of an array, a tagged field, or 4,096 bytes of a string; records do not count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from odradek_broker.apis.context import Context
from odradek_broker.config import REQUEST_ELEMENTS
from odradek_broker.network import faults
from odradek_broker.network.exchange import Exchange
from odradek_broker.network.routes import Route, elements_max
from odradek_wire.errors import DecodeError, TooManyElementsError

if TYPE_CHECKING:
    from odradek_broker.network.connection import Connection

T = TypeVar("T")

REQUESTS_HELD = 4
"""Requests with `elements_max` elements that may be in memory at a time."""


class LongRequests:
    """The long requests of one server. `elements` counts the elements of those in progress."""

    __slots__ = ("_elements_in_memory_max", "_executor", "_loop", "_waiting", "elements", "elements_max")

    def __init__(self, loop: asyncio.AbstractEventLoop, elements_max: int) -> None:
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None
        self._elements_in_memory_max = REQUESTS_HELD * elements_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.elements = 0
        self.elements_max = elements_max

    async def run(self, work: Callable[[], T]) -> T:
        """Run work that touches no state of the broker on the thread, and return its result."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="odradek-codec")
        return await self._loop.run_in_executor(self._executor, work)

    async def take(self, elements: int) -> None:
        """Wait until this many more elements, at most `elements_max`, may be in memory, and count them."""
        while self.elements + elements > self._elements_in_memory_max:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_all()
                raise
        self.elements += elements

    def give_back(self, elements: int) -> None:
        self.elements -= elements
        self._wake_all()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _wake_all(self) -> None:
        # All of them check again, because there may be room for several.
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)


class LongRequest:
    """One long request. Its connection handles no other request until `end`."""

    __slots__ = ("_connection", "_ctx", "_elements", "_frame", "_held_bytes", "_position", "_route", "_task")

    def __init__(self, connection: Connection, ctx: Context, route: Route, frame: memoryview, position: int) -> None:
        """Keep the frame, or a copy of it if the connection reuses its buffer, and serve the request in a task."""
        self._connection = connection
        self._ctx = ctx
        self._route = route
        self._position = position
        self._elements = 0
        connection.busy = True
        self._frame: memoryview | bytearray = frame
        held_bytes = connection.hold_request()
        if held_bytes is None:
            self._frame = bytearray(frame)
            held_bytes = len(frame)
            connection.memory.take_unchecked(held_bytes)
        self._held_bytes = held_bytes
        self._task: asyncio.Task[None] | None = connection.server.loop.create_task(self._serve())

    def end(self) -> None:
        """Release memory and elements, after the response or the loss of the connection."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._connection.memory.give_back(self._held_bytes)
        self._connection.server.long_requests.give_back(self._elements)

    async def _serve(self) -> None:
        connection, ctx, route = self._connection, self._ctx, self._route
        long_requests = connection.server.long_requests
        limit = elements_max(route.api, long_requests.elements_max)
        # The number of elements is unknown until the request is decoded, but each has at least one byte.
        upper_bound = min(limit, len(self._frame))
        await long_requests.take(upper_bound)
        self._elements = upper_bound
        try:
            request, self._elements = await long_requests.run(
                lambda: route.decode_limited(self._frame, self._position, limit)
            )
        except TooManyElementsError:
            return connection.refuse(
                "request has too many elements; closing the connection",
                ctx,
                elements_max=limit,
                setting=REQUEST_ELEMENTS,
            )
        except (DecodeError, IndexError, ValueError) as error:
            return connection.refuse("request cannot be read; closing the connection", ctx, error=str(error))
        long_requests.give_back(upper_bound - self._elements)
        self._task = None
        if connection.closing:
            return None
        exchange = Exchange(connection, ctx, route, request, len(self._frame), is_long=True)
        interceptors = connection.interceptors
        if interceptors.before_handle:
            verdict = interceptors.on_request(ctx, request)
            if verdict is not None:
                return faults.apply_before_handler(exchange, verdict)
        return exchange.handle()
