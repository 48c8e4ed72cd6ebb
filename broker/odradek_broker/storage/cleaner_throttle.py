"""`log.cleaner.io.max.bytes.per.second`: how fast all logs together are read and written that are being compacted."""

from __future__ import annotations

import asyncio
from functools import partial

from odradek_broker.timers import Timers

_UNTHROTTLED = 1e15
_LEAST_PAUSE_MS = 10


class CleanerThrottle:
    """Of one broker, on the clock of timeouts."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._paid_until_ms = 0.0
        """When everything that was moved may have been moved."""
        self._pauses: set[asyncio.Future[None]] = set()
        self._stopped = False

    async def moved(self, size: int, rate: float) -> None:
        """So many bytes were read and written: wait until that is no more than `rate`, in bytes a second, allows."""
        if rate >= _UNTHROTTLED or self._stopped:
            return
        now_ms = self._timers.now_ms()
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + size * 1000 / rate
        pause_ms = int(self._paid_until_ms - now_ms)
        if pause_ms < _LEAST_PAUSE_MS:
            return
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        self._timers.call_later(pause_ms, partial(_end, pause))
        await pause
        self._pauses.discard(pause)

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped = True
        for pause in self._pauses:
            _end(pause)


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
