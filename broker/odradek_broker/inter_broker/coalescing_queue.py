"""A queue of entries by key, which sends all entries that wait in one request, and one request at a time.

Owns the loop: entries that are added while a request is in flight wait for the next one, a later entry replaces an
earlier one with the same key, and entries that failed are sent again after a delay. Leaves requests and responses to
its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from odradek_broker.logger import Logger

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CoalescingQueue(Generic[K, V]):
    """The entries that wait, and the task that sends them, which runs only while there are entries."""

    def __init__(
        self,
        send: Callable[[dict[K, V]], Awaitable[dict[K, V]]],
        *,
        sleep: Callable[[int], Awaitable[None]],
        retry_ms: int,
        failure_event: str,
        log: Logger,
    ) -> None:
        """`send` sends entries and returns those to send again. If it raises, the queue logs `failure_event` and sends
        all of them again. `sleep` takes milliseconds."""
        self._send = send
        self._sleep = sleep
        self._retry_ms = retry_ms
        self._failure_event = failure_event
        self._log = log
        self._waiting: dict[K, V] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        """The number of entries that wait, without those in flight."""
        return len(self._waiting)

    def get(self, key: K) -> V | None:
        """The entry that waits under this key, if any."""
        return self._waiting.get(key)

    def add(self, key: K, value: V) -> None:
        """Send this entry with the next request. After `close` this does nothing."""
        if self._closed:
            return
        self._waiting[key] = value
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> dict[K, V]:
        """Cancel the request in flight, wait until the task has ended, and return the entries that waited."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return waiting

    async def _run(self) -> None:
        while self._waiting:
            sent, self._waiting = self._waiting, {}
            try:
                to_retry = await self._send(sent)
            except Exception as error:
                self._log.error(self._failure_event, exc_info=error)
                to_retry = sent
            if to_retry:
                self._waiting = {**to_retry, **self._waiting}
                await self._sleep(self._retry_ms)
        self._task = None
