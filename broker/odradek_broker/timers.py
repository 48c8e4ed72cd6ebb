"""The timers of a broker, on the clock of timeouts.

Owns the order in which timers fire (deadline, then registration) and the one wake-up of the event loop. Leaves the time
to `clock`. Socket timers are not here.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from odradek_broker.clock import Clock
from odradek_broker.logger import Logger


class Wakeup(Protocol):
    """The handle that `call_later` of an event loop returns."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The methods of an event loop that timers need; the simulation has its own."""

    def call_soon(self, callback: Callable[[], object]) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> Wakeup: ...


class TimerHandle:
    """A timer that has not fired yet. `cancel()` is idempotent."""

    __slots__ = ("_callback", "_timers", "deadline_ms", "sequence")

    def __init__(self, timers: Timers, deadline_ms: int, sequence: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self.sequence = sequence
        self._callback: Callable[[], None] | None = callback

    def __lt__(self, other: TimerHandle) -> bool:
        return (self.deadline_ms, self.sequence) < (other.deadline_ms, other.sequence)

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._timers.count_cancelled()

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Timers:
    """All timers of one broker. `call_later` is cheap; cancelled timers leave the heap lazily."""

    __slots__ = ("_cancelled", "_clock", "_heap", "_log", "_scheduler", "_sequence", "_wakeup", "_wakeup_ms", "closed")

    def __init__(
        self, clock: Clock, scheduler: Scheduler | asyncio.AbstractEventLoop, log: Logger | None = None
    ) -> None:
        """Without a `log`, `fire_due` raises the exception of a callback; tests use that."""
        self._clock = clock
        self._log = log
        self._scheduler = scheduler
        self._heap: list[TimerHandle] = []
        self._sequence = 0
        self._cancelled = 0
        self._wakeup: Wakeup | None = None
        self._wakeup_ms = 0
        self.closed = False
        """Whether the broker ends: a callback of `call_soon` may still run, and must change nothing then."""
        clock.on_timeouts_advanced(self.fire_due)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` after the present callback, before any timer."""
        self._scheduler.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Run `callback` when `delay_ms` have passed on the clock of timeouts; with 0 after the present callback."""
        self._sequence += 1
        handle = TimerHandle(self, self._clock.monotonic_ms() + max(delay_ms, 0), self._sequence, callback)
        heapq.heappush(self._heap, handle)
        if self._wakeup is None or handle.deadline_ms < self._wakeup_ms:
            self._arm(handle.deadline_ms)
        return handle

    def now_ms(self) -> int:
        """Milliseconds on the clock of timeouts."""
        return self._clock.monotonic_ms()

    async def sleep(self, delay_ms: int) -> None:
        """Wait for `delay_ms` on the clock of timeouts."""
        over = asyncio.Event()
        timer = self.call_later(delay_ms, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def fire_due(self) -> None:
        """Fire the timers whose deadlines have passed, in order, also those that callbacks register meanwhile."""
        heap = self._heap
        while heap and heap[0].deadline_ms <= self._clock.monotonic_ms():
            handle = heapq.heappop(heap)
            if not handle.pending:
                self._cancelled -= 1
                continue
            try:
                handle.fire()
            except Exception as error:
                if self._log is None:
                    raise
                self._log.error("timer failed", exc_info=error)
        if heap:
            self._arm(heap[0].deadline_ms)

    def count_cancelled(self) -> None:
        """Count a cancelled handle; rebuild the heap if most of its handles are cancelled."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            # In place: `fire_due` may be iterating.
            self._heap[:] = [handle for handle in self._heap if handle.pending]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Cancel every timer and leave the clock, which may outlive the broker."""
        self.closed = True
        self._clock.forget(self.fire_due)
        self._heap.clear()
        self._cancelled = 0
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None

    def _arm(self, deadline_ms: int) -> None:
        if self._wakeup is not None:
            self._wakeup.cancel()
        self._wakeup_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        # The monotonic clock counts whole milliseconds: without one more the loop would wake too early and spin.
        self._wakeup = self._scheduler.call_later((delay_ms + 1) / 1000 if delay_ms else 0, self._woken)

    def _woken(self) -> None:
        self._wakeup = None
        self.fire_due()
