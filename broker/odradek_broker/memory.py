"""Memory that clients can make the broker hold: one budget per broker.

Owns the count of bytes in partly received requests and buffered answers, the room that a conversion needs beside them,
and the queues of connections that stopped reading because it is exhausted. Owns as well the receive buffers that are
used again and again: one shared by all connections for whatever fits into one read, and a pool for large requests.

Converting and decompressing happen on the loop, one batch at a time, and what comes of it has been written to a log or
counts as a buffered answer when the loop goes on. So room for it is asked for, not taken: nobody else can take it
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SHARED_BUFFER_SIZE = 256 * 1024
POOLED_BUFFER_SIZE = 1024 * 1024 + 64 * 1024
"""Fits a request of librdkafka's and Java's default maximum (1 MB of records and a header)."""
POOLED_BUFFERS_MAX = 8
DEFAULT_BUDGET = 512 * 1024 * 1024
CONVERSION = 8
"""Bytes that are set aside for each byte of records to be decompressed or converted: `compression` begins with a
fourfold buffer and copies what it found. More is allowed, up to the expansion limit of a batch."""


class MemoryExhausted(Exception):
    """A handler finds no room for a conversion, and has done nothing yet: its request is handled again later."""

    def __init__(self, size: int) -> None:
        super().__init__(f"no room for {size} bytes")
        self.size = size


class MemoryBudget:
    """Bytes out and back. One taker is always served when nothing is out, so that no request is too large to be read.

    Who waits for room with bytes in hand is stuck. While anybody is, nobody takes any more: what is out becomes less,
    and sooner or later there is room. It need not become less than what all who are stuck hold together
    (`stuck_bytes`), so that no request is too large to be converted and no two wait for each other. Among them, who
    finds room goes first: a conversion holds nothing when it is over, and keeps none of the others waiting."""

    __slots__ = ("_serving", "_stuck", "_waiting", "limit", "stuck_bytes", "used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self.stuck_bytes = 0
        self._stuck: dict[Callable[[], None], tuple[int, int]] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._serving = False

    def take(self, size: int) -> bool:
        """Take `size` bytes; False when they are not there now, or others come first."""
        if self.used and (self._stuck or self.used + size > self.limit):
            return False
        self.used += size
        return True

    def take_unchecked(self, size: int) -> None:
        """Count bytes that are held already, such as an answer that its client does not read."""
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "more memory was given back than taken"
        if (self._stuck or self._waiting) and not self._serving:
            self._serve()

    def has_room(self, size: int, own: int) -> bool:
        """May somebody who has taken `own` bytes hold `size` more for a moment?"""
        return self.used + size <= self.limit or self.used - self.stuck_bytes <= own

    def when_available(self, callback: Callable[[], None]) -> None:
        """Call back once something was given back. The callback tries again, and queues itself again if need be."""
        self._waiting.append(callback)

    def when_room(self, size: int, own: int, callback: Callable[[], None]) -> None:
        """Call back once `has_room(size, own)`. Until then nobody takes anything, new or waiting."""
        self._stuck[callback] = (size, own)
        self.stuck_bytes += own

    def forget(self, callback: Callable[[], None]) -> None:
        """Who waited for room has gone away."""
        _, own = self._stuck.pop(callback, (0, 0))
        self.stuck_bytes -= own

    def _serve(self) -> None:
        """Callbacks give back in their turn; that is looked at here, one after the other, and not by recursion."""
        self._serving = True
        try:
            waiting = self._waiting
            while True:
                callback = self._stuck_with_room()
                if callback is not None:
                    self.forget(callback)
                    callback()
                    continue
                if self._stuck or not waiting or self.used >= self.limit:
                    break
                queued = len(waiting)
                waiting.popleft()()
                if len(waiting) >= queued:
                    break  # it waits again: what was given back is not enough
        finally:
            self._serving = False

    def _stuck_with_room(self) -> Callable[[], None] | None:
        """Who has waited longest among those that there is room for now. Their own bytes are among `stuck_bytes`."""
        return next((callback for callback, (size, _) in self._stuck.items() if self.has_room(size, 0)), None)


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

    def hold(self, arrived: memoryview) -> memoryview:
        """A copy of what is in hand already, counted whether there is room or not."""
        self.budget.take_unchecked(len(arrived))
        return memoryview(bytearray(arrived))

    def give_back(self, view: memoryview) -> None:
        if len(view) == POOLED_BUFFER_SIZE and len(self._pool) < POOLED_BUFFERS_MAX:
            self._pool.append(view)
        self.budget.give_back(len(view))
