"""The disk executor: a broker's bounded threads for work that waits for the disk.

Decisions are made on the event loop; flushes, checkpoints and removals of files run here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from odradek_broker.logger import Logger
from odradek_broker.timers import Timers

T = TypeVar("T")

WORKERS = 2


class DiskExecutor:
    """The threads start with the first work. Logs call `later` to remove files after a delay."""

    def __init__(self, timers: Timers, log: Logger) -> None:
        self._timers = timers
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._executor: ThreadPoolExecutor | None = None
        self._running: set[asyncio.Future[None]] = set()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the executor takes no more work."""
        return self._stopped

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Run the callback on a worker thread after the delay."""

        def due() -> None:
            self.run("delayed disk work", callback)

        self._timers.call_later(delay_ms, due)

    def run(self, name: str, work: Callable[[], None]) -> asyncio.Future[None] | None:
        """Run the work on a worker thread; return its future, or None after `stop_accepting`.

        Logs an exception of the work with its `name`.
        """
        if self._stopped:
            return None
        future = self._loop.run_in_executor(self._threads(), work)
        self._running.add(future)
        future.add_done_callback(lambda done: self._finished(name, done))
        return future

    async def run_and_wait(self, work: Callable[[], T]) -> T:
        """Run the work on a worker thread, also after `stop_accepting`; return its result or raise its exception."""
        if self._stopped:
            return await asyncio.to_thread(work)
        return await self._loop.run_in_executor(self._threads(), work)

    def to_loop(self, callback: Callable[[], None]) -> None:
        """Run the callback on the event loop. Safe from any thread."""
        self._loop.call_soon_threadsafe(callback)

    def stop_accepting(self) -> None:
        """Take no more work."""
        self._stopped = True

    async def stop(self) -> None:
        """Take no more work and wait for the work that runs."""
        self.stop_accepting()
        if self._running:
            await asyncio.wait(self._running)
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="odradek-disk")
        return self._executor

    def _finished(self, name: str, future: asyncio.Future[None]) -> None:
        self._running.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._log.error("disk work failed", work=name, error=f"{type(error).__name__}: {error}")
