"""The timer for the next deadline of a coordinator's state machine.

Leaves the deadlines, and their consequences, to the state machine.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.clock import Clock
from odradek_broker.timers import TimerHandle, Timers


class DeadlineTimer:
    """A timer that is armed after each step. Only a deadline before the timer's time resets it, so a heartbeat, which
    moves a deadline later, does not. If the timer fires before any deadline has passed, it is armed again."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        next_deadline_ms: Callable[[], int | None],
        handle_deadlines: Callable[[], None],
    ) -> None:
        """`next_deadline_ms` returns a time at or before the next deadline, on the clock of timeouts.
        `handle_deadlines` is called when the timer fires."""
        self._clock = clock
        self._timers = timers
        self._next_deadline_ms = next_deadline_ms
        self._handle_deadlines = handle_deadlines
        self._timer: TimerHandle | None = None

    def arm(self) -> None:
        """Set the timer for the next deadline, unless it is set for that time or an earlier one."""
        next_ms = self._next_deadline_ms()
        if next_ms is None:
            return
        if self._timer is not None and self._timer.pending:
            if self._timer.deadline_ms <= next_ms:
                return
            self._timer.cancel()
        self._timer = self._timers.call_later(next_ms - self._clock.monotonic_ms(), self._handle_deadlines)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
