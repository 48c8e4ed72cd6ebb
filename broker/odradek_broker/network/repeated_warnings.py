"""Warnings that clients cause: at most one line per second for each event.

Owns the events of the last second, and the count of their suppressed warnings. Leaves events and facts to its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek_broker.logger import Logger

INTERVAL_S = 1.0
EVENTS_MAX = 100
"""The bound of the events of one second; warnings of further events are not suppressed."""


class RepeatedWarnings:
    """Logs the first warning of an event immediately, and those of the following second in one line, with their `count`
    and the facts of the last one."""

    __slots__ = ("_call_later", "_suppressed")

    def __init__(self, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        """`call_later` takes seconds and a callback, as the event loop's does."""
        self._call_later = call_later
        self._suppressed: dict[str, _Suppressed] = {}

    def warning(self, log: Logger, event: str, facts: Mapping[str, Any]) -> None:
        """Log the event now, or count it."""
        suppressed = self._suppressed.get(event)
        if suppressed is None:
            if len(self._suppressed) < EVENTS_MAX:
                self._begin(event)
            log.warning(event, **facts)
        else:
            suppressed.count += 1
            suppressed.log, suppressed.facts = log, facts

    def close(self) -> None:
        """Log the suppressed warnings, and forget all events."""
        for event, suppressed in self._suppressed.items():
            suppressed.timer.cancel()
            suppressed.write(event)
        self._suppressed.clear()

    def _begin(self, event: str) -> None:
        self._suppressed[event] = _Suppressed(self._call_later(INTERVAL_S, lambda: self._end(event)))

    def _end(self, event: str) -> None:
        suppressed = self._suppressed.pop(event)
        if suppressed.count:
            suppressed.write(event)
            self._begin(event)


class _Suppressed:
    """The warnings of one event since its last line, and the timer that logs them."""

    __slots__ = ("count", "facts", "log", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.count = 0
        self.log: Logger | None = None
        self.facts: Mapping[str, Any] = {}

    def write(self, event: str) -> None:
        if self.log is not None:
            self.log.warning(event, count=self.count, **self.facts)
