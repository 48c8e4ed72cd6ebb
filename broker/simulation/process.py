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
    """`hosts` are its hosts: one, or those of all brokers in an embedded cluster."""

    def __init__(self, name: str, hosts: tuple[str, ...], clock: Clock) -> None:
        self.name = name
        self.hosts = hosts
        self.clock = clock
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    async def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the process and wait for it."""
        return await asyncio.get_running_loop().create_task(work, context=self.context)

    def call(self, what: Callable[..., object], *args: Any) -> None:
        """Call a function in the process, once the process is not paused."""
        asyncio.get_running_loop().call_soon(what, *args, context=self.context)


class ProcessTimers:
    """The timers of a ZooKeeper client in the process; without a process, those of the server."""

    def __init__(self, process: Process | None) -> None:
        self._context = copy_context() if process is None else process.context
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback, context=self._context)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, context=self._context)
