"""The two clocks of a broker, which tests can advance separately.

Owns the wall clock (record timestamps, retention) and the clock of timeouts (sessions, delayed operations, quotas).
Leaves firing timers to `timers`, and socket timers, which always follow the real time, to the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NANOSECONDS_PER_MS = 1_000_000


class Clock:
    """Both clocks: each reads a source of time, and adds the milliseconds by which the user has moved it."""

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
        """Return milliseconds since the Unix epoch, as in record timestamps."""
        return self._wall_ns() // NANOSECONDS_PER_MS + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds on the clock of timeouts; only differences have a meaning."""
        return self._monotonic_ns() // NANOSECONDS_PER_MS + self._timeouts_ahead_ms

    def advance_wall(self, delta_ms: int) -> None:
        """Move the wall clock (records, retention); a negative delta moves it back."""
        self._wall_ahead_ms += delta_ms

    def restore_wall(self) -> None:
        """Set the wall clock to the real time."""
        self._wall_ahead_ms = 0

    def advance_timeouts(self, delta_ms: int) -> None:
        """Move the clock of timeouts forward; every `Timers` on it fires the due timers before this returns."""
        assert delta_ms >= 0, "the clock of timeouts never runs backwards"
        self._timeouts_ahead_ms += delta_ms
        for listener in tuple(self._listeners):
            listener()

    def on_timeouts_advanced(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time the user moves the clock of timeouts."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Undo `on_timeouts_advanced`; idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)
