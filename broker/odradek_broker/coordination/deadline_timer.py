"""A coordinator's core acts in time: one timer for the next of its deadlines.

Leaves which deadlines there are, and what follows when one has passed, to the core.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.clock import Clock
from odradek_broker.timers import TimerHandle, Timers


class DeadlineTimer:
    """Armed after each step of the core: whatever comes later than the next deadline needs no timer yet, and a deadline
    that has moved later, as every heartbeat moves one, none that is new."""

    def __init__(
        self, clock: Clock, timers: Timers, next_ms: Callable[[], int | None], expire: Callable[[], None]
    ) -> None:
        """`next_ms` is a moment at or before the next deadline, on the clock of timeouts; `expire` acts on all that
        are due."""
        self._clock = clock
        self._timers = timers
        self._next_ms = next_ms
        self._expire = expire
        self._timer: TimerHandle | None = None

    def arm(self) -> None:
        next_ms = self._next_ms()
        if next_ms is None:
            return
        if self._timer is not None and self._timer.pending:
            if self._timer.deadline_ms <= next_ms:
                return
            self._timer.cancel()
        self._timer = self._timers.call_later(next_ms - self._clock.monotonic_ms(), self._expire)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
