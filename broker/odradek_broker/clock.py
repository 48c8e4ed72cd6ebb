"""The two clocks of a broker that a user may move.

Owns the wall clock (timestamps of records, retention) and the clock of timeouts (sessions, delayed operations, quotas).
Each is moved on its own. Leaves socket timers, which are always real, to the event loop, and firing to `timers`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NANOSECONDS_PER_MS = 1_000_000


class Clock:
    """Reads two sources of time and adds what the user asked for. Never runs backwards by itself."""

    __slots__ = ("_listeners", "_monotonic_ns", "_timeouts_ahead_ms", "_wall_ahead_ms", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._wall_ahead_ms = 0
        self._timeouts_ahead_ms = 0
        self._listeners: list[Callable[[], None]] = []

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as records carry them."""
        return self._wall_ns() // NANOSECONDS_PER_MS + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds on the clock of timeouts; only differences mean something."""
        return self._monotonic_ns() // NANOSECONDS_PER_MS + self._timeouts_ahead_ms

    def advance_wall(self, delta_ms: int) -> None:
        """Move the clock of records and retention; a negative delta moves it back."""
        self._wall_ahead_ms += delta_ms

    def restore_wall(self) -> None:
        """The clock of records and retention shows the real time again, whatever it was moved by."""
        self._wall_ahead_ms = 0

    def advance_timeouts(self, delta_ms: int) -> None:
        """Move the clock of timeouts forward; every `Timers` on it fires what became due, before this returns."""
        assert delta_ms >= 0, "the clock of timeouts never runs backwards"
        self._timeouts_ahead_ms += delta_ms
        for listener in tuple(self._listeners):
            listener()

    def on_timeouts_advanced(self, listener: Callable[[], None]) -> None:
        """Register what has to look at its deadlines again when the user moves the clock of timeouts."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Undo `on_timeouts_advanced`; idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)
