"""`log.cleaner.io.max.bytes.per.second`: the bytes that the log cleaner reads and writes per second, for all logs."""

from __future__ import annotations

import asyncio
from functools import partial

from odradek_broker.timers import Timers

_UNTHROTTLED = 1e15
_LEAST_PAUSE_MS = 10


class CleanerThrottle:
    """The throttle of one broker, on the clock of timeouts."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._within_rate_at_ms = 0.0
        """The time at which the bytes so far are within the rate."""
        self._pauses: set[asyncio.Future[None]] = set()
        self._stopped = False

    async def record(self, size: int, rate: float) -> None:
        """Record `size` bytes that were read and written; wait until they are within `rate`, in bytes per second."""
        if rate >= _UNTHROTTLED or self._stopped:
            return
        now_ms = self._timers.now_ms()
        self._within_rate_at_ms = max(self._within_rate_at_ms, now_ms) + size * 1000 / rate
        pause_ms = int(self._within_rate_at_ms - now_ms)
        if pause_ms < _LEAST_PAUSE_MS:
            return
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        self._timers.call_later(pause_ms, partial(_end, pause))
        await pause
        self._pauses.discard(pause)

    def stop(self) -> None:
        """End all waits, and wait no more."""
        self._stopped = True
        for pause in self._pauses:
            _end(pause)


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
