"""Memory that clients can make the broker hold: one budget per broker.

Owns the count of bytes in partly received requests, buffered responses and conversions, and the queue of connections
that stopped reading because it is exhausted. Owns as well the receive buffers that are used again and again: one shared
by all connections for whatever fits into one read, and a pool for large requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SHARED_BUFFER_SIZE = 256 * 1024
POOLED_BUFFER_SIZE = 1024 * 1024 + 64 * 1024
"""Fits a request of librdkafka's and Java's default maximum (1 MB of records and a header)."""
POOLED_BUFFERS_MAX = 8
DEFAULT_BUDGET = 512 * 1024 * 1024


class MemoryBudget:
    """Bytes out and back. One taker is always served when nothing is out, so that no request is too large to be
    read."""

    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int) -> bool:
        """Take `size` bytes; False when they are not there now."""
        if self.used and self.used + size > self.limit:
            return False
        self.used += size
        return True

    def take_anyway(self, size: int) -> None:
        """Count bytes that are held already, such as an answer that its client does not read."""
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "more memory was given back than taken"
        waiting = self._waiting
        while waiting and self.used < self.limit:
            queued = len(waiting)
            waiting.popleft()()
            if len(waiting) >= queued:
                break  # it waits again: what was given back is not enough

    def when_available(self, callback: Callable[[], None]) -> None:
        """Call back once something was given back. The callback tries again, and queues itself again if need be."""
        self._waiting.append(callback)


class ReceiveBuffers:
    """Buffers of one server. The shared one is valid within one callback of the loop only."""

    __slots__ = ("_pool", "budget", "shared", "shared_view")

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.shared = bytearray(SHARED_BUFFER_SIZE)
        self.shared_view = memoryview(self.shared)
        self._pool: list[memoryview] = []

    def take(self, size: int) -> memoryview | None:
        """A buffer of at least `size` bytes, or None when the budget is exhausted."""
        size = size if size > POOLED_BUFFER_SIZE else POOLED_BUFFER_SIZE if size > 16384 else 16384
        if not self.budget.take(size):
            return None
        if size == POOLED_BUFFER_SIZE and self._pool:
            return self._pool.pop()
        return memoryview(bytearray(size))

    def give_back(self, view: memoryview) -> None:
        if len(view) == POOLED_BUFFER_SIZE and len(self._pool) < POOLED_BUFFERS_MAX:
            self._pool.append(view)
        self.budget.give_back(len(view))
