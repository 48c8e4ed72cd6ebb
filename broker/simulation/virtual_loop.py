"""An event loop on virtual time: it never waits, but moves its clock to the next timer.

Owns the clock, the paused processes and executor work, which runs on the loop after a random delay. Leaves the network
to `memory_network`. The seed decides everything, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from simulation.memory_network import MemoryNetwork
from simulation.process import PROCESS, Process

START_MS = 1_700_000_000_000
_RESOLUTION_S = 1e-9
_TURNS_MAX = 20_000
"""The loop raises NoProgressError after this number of iterations at one point of time."""


class NoProgressError(Exception):
    """No timer is left, or the tasks run without end at one point of time."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` returns the virtual seconds since the start. `disk_time_s()` returns the time that syncs have taken
    since its last call."""

    _ready: deque[asyncio.Handle]

    def __init__(
        self,
        network: MemoryNetwork,
        chance: random.Random,
        disk_time_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._network = network
        self._chance = chance
        self._disk_time_s = disk_time_s
        self._stopped: dict[Process, list[asyncio.Handle]] = {}
        self.failures: list[str] = []
        """Exceptions that no task caught."""
        self.set_exception_handler(self._record_uncaught)

    def time(self) -> float:
        return self._now

    def monotonic_ns(self) -> int:
        return round(self._now * 1e9)

    def wall_ns(self) -> int:
        return START_MS * 1_000_000 + round(self._now * 1e9)

    def wall_ms(self) -> int:
        return self.wall_ns() // 1_000_000

    # -- paused processes ---------------------------------------------------------------------------------------------

    def pause_process(self, process: Process) -> None:
        """Pause a process as SIGSTOP does; `resume_process` runs its overdue callbacks."""
        self._stopped[process] = []

    def resume_process(self, process: Process) -> None:
        self._ready.extend(self._stopped.pop(process))

    def _set_aside_paused(self) -> None:
        """Move the due callbacks of paused processes out of the ready queue."""
        due = [*self._ready]
        self._ready.clear()
        for handle in due:
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            self._stopped.get(process, self._ready).append(handle)

    # -- a turn -------------------------------------------------------------------------------------------------------

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Timers that are due at the same time run in the order of their creation."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def _run_once(self) -> None:
        """Run the ready callbacks, as BaseEventLoop does, without a selector. The heap compares timers by number,
        because handles compare themselves in Python, and drops cancelled timers when they are due."""
        timers, ready = self._timers, self._ready
        if ready or self._stopping:  # type: ignore[attr-defined]
            self._turns += 1
            if self._turns > _TURNS_MAX:
                raise NoProgressError("virtual time stands still: tasks keep the loop busy without waiting")
        else:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise NoProgressError("every task waits, and no timer is left")
            self._turns = 0
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now + _RESOLUTION_S:
            ready.append(heapq.heappop(timers)[2])
        if self._stopped:
            self._set_aside_paused()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes the loop."""

    def _record_uncaught(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {type(error).__name__}: {error}")

    # -- threads ------------------------------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function after a random delay; the future completes after the time that the disk takes."""
        future = self.create_future()

        def run() -> None:
            self._disk_time_s()
            try:
                result = func(*args)
            except Exception as error:
                self.call_later(self._disk_time_s(), _complete, future, None, error)
            else:
                self.call_later(self._disk_time_s(), _complete, future, result, None)

        self.call_later(self._chance.expovariate(2000), run)
        return future

    # -- the network --------------------------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return self._network.listen(protocol_factory, host, port, start_serving=options.get("start_serving", True))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self._network.connect(protocol_factory, host, port)


def _complete(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
