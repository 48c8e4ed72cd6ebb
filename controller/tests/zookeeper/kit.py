"""ZooKeeper for tests: the double on a manual clock, and a real server behind a proxy that fails."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from odradek_peers import ZooKeeperServer

from odradek_controller.zookeeper.client import ZooKeeper
from odradek_controller.zookeeper.kazoo_client import KazooZooKeeper
from zookeeper_double.server import ZooKeeperClientDouble, ZooKeeperServerDouble

Condition = Callable[[], bool | Awaitable[bool]]

TIMEOUT_S = 60.0
_STEP_MS = 50
_ROUNDS_WITHOUT_TIME = 200


class ManualTimers:
    """Timers of the double, on a manual clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._numbers = itertools.count()
        self._heap: list[tuple[int, int, _ManualTimer]] = []

    def call_soon(self, callback: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> _ManualTimer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._heap, (self.now_ms + delay_ms, next(self._numbers), timer))
        return timer

    def advance(self, delta_ms: int) -> None:
        """Advance the clock, and fire each timer at its own time."""
        end = self.now_ms + delta_ms
        while self._heap and self._heap[0][0] <= end:
            self.now_ms, _, timer = heapq.heappop(self._heap)
            timer.fire()
        self.now_ms = end


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class World(Protocol):
    """A ZooKeeper, its clients and their faults. `base` is the chroot of this test."""

    base: str

    async def connect(self, chroot: str | None = None, *, session_timeout_ms: int = 20_000) -> ZooKeeper:
        """Return a client with the chroot `base`, or another one. `close` closes it."""
        ...

    def drop(self, client: ZooKeeper) -> None:
        """Reset a client's connection."""
        ...

    def cut(self, client: ZooKeeper) -> None:
        """Delay all messages in both directions until `heal`."""
        ...

    def heal(self, client: ZooKeeper) -> None: ...

    async def restart(self) -> None:
        """Kill the server, and start it again on its data."""
        ...

    async def sleep(self, delay_ms: int) -> None: ...

    async def until(self, condition: Condition) -> None:
        """Let time pass until the condition holds. Raises AssertionError or TimeoutError if it takes too long."""
        ...

    async def close(self) -> None: ...


async def _holds(condition: Condition) -> bool:
    found = condition()
    return bool(await found) if inspect.isawaitable(found) else bool(found)


class DoubleWorld:
    """The double. With a latency, its clock runs while tasks run; otherwise only in `until`."""

    base = "/base"

    def __init__(self, latency_ms: int = 0) -> None:
        self.timers = ManualTimers()
        self.server = ZooKeeperServerDouble(self.timers, latency_ms=lambda: latency_ms)
        self._clients: list[ZooKeeperClientDouble] = []
        self._moves = asyncio.create_task(self._move()) if latency_ms else None

    async def connect(self, chroot: str | None = None, *, session_timeout_ms: int = 20_000) -> ZooKeeper:
        chroot = self.base if chroot is None else chroot
        client = await self.server.connect(chroot=chroot, session_timeout_ms=session_timeout_ms)
        self._clients.append(client)
        return client

    def drop(self, client: ZooKeeper) -> None:
        self.server.drop(self._double(client))

    def cut(self, client: ZooKeeper) -> None:
        self.server.cut(self._double(client))

    def heal(self, client: ZooKeeper) -> None:
        self.server.heal(self._double(client))

    async def restart(self) -> None:
        self.server.stop()
        self.server.start()

    async def sleep(self, delay_ms: int) -> None:
        over = asyncio.Event()
        self.timers.call_later(delay_ms, over.set)
        await over.wait()

    async def until(self, condition: Condition) -> None:
        # First without time, so that no session expires.
        for _ in range(_ROUNDS_WITHOUT_TIME):
            if await _holds(condition):
                return
            await asyncio.sleep(0)
        for _ in range(1_000):
            self.timers.advance(_STEP_MS)
            for _ in range(20):
                if await _holds(condition):
                    return
                await asyncio.sleep(0)
        raise AssertionError("the condition does not hold after 50 seconds")

    async def close(self) -> None:
        for client in self._clients:
            self.heal(client)
            await client.close()
        if self._moves is not None:
            self._moves.cancel()

    def _double(self, client: ZooKeeper) -> ZooKeeperClientDouble:
        assert isinstance(client, ZooKeeperClientDouble)
        return client

    async def _move(self) -> None:
        """Advance the clock by a millisecond in each iteration of the loop."""
        while True:
            self.timers.advance(1)
            await asyncio.sleep(0)


class Network:
    """The proxy between one client and the server, on its own thread and loop."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._server = self._run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def drop(self) -> None:
        self._run(self._drop())

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def send_garbage(self, data: bytes) -> None:
        """Send these bytes to the client, as if from the server."""
        self._run(self._send_garbage(data))

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        pair = (writer, there_writer)
        self._pairs.add(pair)
        await asyncio.gather(self._pump(reader, there_writer, pair), self._pump(there_reader, writer, pair))
        self._tasks.discard(task)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        self._abort(pair)

    def _abort(self, pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self._pairs.discard(pair)
        for writer in pair:
            writer.transport.abort()

    async def _drop(self) -> None:
        for pair in tuple(self._pairs):
            self._abort(pair)

    async def _send_garbage(self, data: bytes) -> None:
        for to_client, _ in self._pairs:
            to_client.write(data)

    async def _end(self) -> None:
        self._open.set()
        self._server.close()
        await self._drop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class RealWorld:
    """A real server that several tests share; each test has its own part of the tree."""

    def __init__(self, server: ZooKeeperServer, base: str) -> None:
        self.server = server
        self.base = base
        self._clients: list[tuple[KazooZooKeeper, Network]] = []

    async def connect(self, chroot: str | None = None, *, session_timeout_ms: int = 20_000) -> ZooKeeper:
        network = Network(self.server.port)
        chroot = self.base if chroot is None else chroot
        client = await KazooZooKeeper.connect(
            f"127.0.0.1:{network.port}{chroot}", session_timeout_ms=session_timeout_ms, connection_timeout_ms=30_000
        )
        self._clients.append((client, network))
        return client

    def drop(self, client: ZooKeeper) -> None:
        self.network(client).drop()

    def cut(self, client: ZooKeeper) -> None:
        self.network(client).cut()

    def heal(self, client: ZooKeeper) -> None:
        self.network(client).heal()

    async def restart(self) -> None:
        self.server.kill()
        self.server.start()

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)

    async def until(self, condition: Condition) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not await _holds(condition):
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        for client, network in self._clients:
            network.heal()
            await client.close()
            network.close()

    def network(self, client: ZooKeeper) -> Network:
        return next(network for known, network in self._clients if known is client)
