"""Warnings that clients cause, at most one line a second for each event.

Owns which warnings were logged lately and how many were left out since. Leaves the facts to the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek_broker.logger import Logger

INTERVAL_S = 1.0
EVENTS_MAX = 100
"""Events remembered at a time. There are fewer in the code; the bound is for what comes."""


class RepeatedWarnings:
    """Log the first warning of an event immediately, those of the following second in one line with their count.

    That line has the facts of the last warning, and `count`."""

    __slots__ = ("_call_later", "_left_out")

    def __init__(self, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        """`call_later` takes seconds and a callback, as the event loop's does."""
        self._call_later = call_later
        self._left_out: dict[str, _LeftOut] = {}

    def warning(self, log: Logger, event: str, facts: Mapping[str, Any]) -> None:
        """Log the event now, or count it."""
        left_out = self._left_out.get(event)
        if left_out is None:
            if len(self._left_out) < EVENTS_MAX:
                self._begin(event)
            log.warning(event, **facts)
        else:
            left_out.count += 1
            left_out.log, left_out.facts = log, facts

    def close(self) -> None:
        """Log what was left out, and forget everything."""
        for event, left_out in self._left_out.items():
            left_out.timer.cancel()
            left_out.write(event)
        self._left_out.clear()

    def _begin(self, event: str) -> None:
        self._left_out[event] = _LeftOut(self._call_later(INTERVAL_S, lambda: self._end(event)))

    def _end(self, event: str) -> None:
        left_out = self._left_out.pop(event)
        if left_out.count:
            left_out.write(event)
            self._begin(event)


class _LeftOut:
    """Warnings of one event since its last line."""

    __slots__ = ("count", "facts", "log", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.count = 0
        self.log: Logger | None = None
        self.facts: Mapping[str, Any] = {}

    def write(self, event: str) -> None:
        if self.log is not None:
            self.log.warning(event, count=self.count, **self.facts)
