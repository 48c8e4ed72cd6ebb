"""A process under test: whose callbacks run when, though all processes share one loop.

Everything a process does is done in its `context`: tasks and timers inherit it, and the network and ZooKeeper deliver
in it. So the loop can let one process stand still, and the network can tell who connects.
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
    """`hosts` are the machines that it is all of: one, but for an embedded cluster."""

    def __init__(self, name: str, hosts: tuple[str, ...], clock: Clock) -> None:
        self.name = name
        self.hosts = hosts
        self.clock = clock
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    async def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Let the process do this, and wait for it."""
        return await asyncio.get_running_loop().create_task(work, context=self.context)

    def call(self, what: Callable[..., object], *args: Any) -> None:
        """Let something befall the process, as soon as it runs."""
        asyncio.get_running_loop().call_soon(what, *args, context=self.context)


class ProcessTimers:
    """What a ZooKeeper client of the process needs of time, or without a process the server."""

    def __init__(self, process: Process | None) -> None:
        self._context = copy_context() if process is None else process.context
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback, context=self._context)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, context=self._context)
