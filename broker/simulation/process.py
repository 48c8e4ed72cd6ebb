"""A process under test. All processes share one event loop; each has a context of its own.

Tasks and timers of a process inherit its `context`, and the network and ZooKeeper call it in that context. Thus the
loop can pause one process, and the network knows the process behind a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from odradek_broker.clock import Clock

R = TypeVar("R")

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Process:
    """A process on one host; the process of an embedded cluster is on the hosts of all brokers."""

    def __init__(self, name: str, hosts: tuple[str, ...], clock: Clock) -> None:
        self.name = name
        self.hosts = hosts
        self.clock = clock
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the process and wait for it."""
        return await asyncio.get_running_loop().create_task(work, context=self.context)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the process soon; while the process is paused, the call waits."""
        asyncio.get_running_loop().call_soon(function, *args, context=self.context)


class ProcessTimers:
    """The timers of the ZooKeeper client in the process; without a process, those of the ZooKeeper server."""

    def __init__(self, process: Process | None) -> None:
        self._context = copy_context() if process is None else process.context
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback, context=self._context)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, context=self._context)
