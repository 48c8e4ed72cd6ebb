"""The memory that the requests of clients use: one budget per broker.

Owns the count of bytes in partly received requests and buffered responses, the check for room before a conversion, and
the queues of connections that wait for memory. Owns the reused receive buffers, too: one that all connections share for
requests that fit into one read, and a pool for large requests.

A conversion (or decompression) checks for room, but does not take it: it runs on the event loop, one batch at a time,
and when the loop continues, its result is in a log or counts as a buffered response.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SHARED_BUFFER_SIZE = 256 * 1024
POOLED_BUFFER_SIZE = 1024 * 1024 + 64 * 1024
"""Enough for a request of the default maximum of librdkafka and Java (1 MB of records and a header)."""
POOLED_BUFFERS_MAX = 8
DEFAULT_BUDGET = 512 * 1024 * 1024
ROOM_PER_CONVERTED_BYTE = 8
"""Bytes of room to require for each byte of records to decompress or convert: `compression` begins with a fourfold
buffer and copies its content. A batch may use more, up to its expansion limit."""


class MemoryExhausted(Exception):
    """Raised by a handler that has no room for a conversion, before the request has had any effect: the broker handles
    the request again later."""

    def __init__(self, size: int) -> None:
        super().__init__(f"no room for {size} bytes")
        self.size = size


class MemoryBudget:
    """Counts bytes taken and returned. A request of any size can be received while no bytes are taken.

    A request that holds bytes and waits for room for a conversion is blocked. While a request is blocked, `take` fails,
    so that the used bytes decrease. They cannot fall below the bytes that blocked requests hold (`blocked_bytes`): when
    no others hold bytes, a blocked request has room in any case. So no request is too large to convert, and no two wait
    for each other. The oldest blocked request that has room continues; its conversion holds no bytes after it ends, so
    that the others do not wait for it."""

    __slots__ = ("_blocked", "_serving", "_waiting", "blocked_bytes", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self.blocked_bytes = 0
        self._blocked: dict[Callable[[], None], tuple[int, int]] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._serving = False

    def take(self, size: int) -> bool:
        """Take `size` bytes; return False, and take none, if too few are left or a request is blocked."""
        if self.used and (self._blocked or self.used + size > self.limit):
            return False
        self.used += size
        return True

    def take_unchecked(self, size: int) -> None:
        """Count bytes that are allocated already, such as a response that the client does not read."""
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "more memory was returned than taken"
        if (self._blocked or self._waiting) and not self._serving:
            self._serve()

    def has_room(self, size: int, held_bytes: int) -> bool:
        """Return whether a request that has taken `held_bytes` may use `size` more for a conversion."""
        return self.used + size <= self.limit or self.used - self.blocked_bytes <= held_bytes

    def when_available(self, callback: Callable[[], None]) -> None:
        """Call back after bytes were given back. The callback calls `take`, and queues itself again if that fails."""
        self._waiting.append(callback)

    def block_until_room(self, size: int, held_bytes: int, callback: Callable[[], None]) -> None:
        """Block a request that has taken `held_bytes`; call back when it has room for `size` more."""
        self._blocked[callback] = (size, held_bytes)
        self.blocked_bytes += held_bytes

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback of `block_until_room`. Idempotent."""
        _, held_bytes = self._blocked.pop(callback, (0, 0))
        self.blocked_bytes -= held_bytes

    def _serve(self) -> None:
        """Call the callbacks that have room, also those that get room when a callback gives back bytes itself."""
        self._serving = True
        try:
            waiting = self._waiting
            while True:
                callback = self._blocked_with_room()
                if callback is not None:
                    self.forget(callback)
                    callback()
                    continue
                if self._blocked or not waiting or self.used >= self.limit:
                    break
                queued = len(waiting)
                waiting.popleft()()
                if len(waiting) >= queued:
                    break  # it queued itself again: too few bytes were returned
        finally:
            self._serving = False

    def _blocked_with_room(self) -> Callable[[], None] | None:
        """Return the oldest callback that has room now. Its own bytes are part of `blocked_bytes`."""
        return next((callback for callback, (size, _) in self._blocked.items() if self.has_room(size, 0)), None)


class ReceiveBuffers:
    """The buffers of one server. The content of the shared one is valid within one callback of the loop only."""

    __slots__ = ("_pool", "budget", "shared", "shared_view")

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.shared = bytearray(SHARED_BUFFER_SIZE)
        self.shared_view = memoryview(self.shared)
        self._pool: list[memoryview] = []

    def take(self, size: int) -> memoryview | None:
        """Return a buffer of at least `size` bytes, or None if the budget is exhausted."""
        size = size if size > POOLED_BUFFER_SIZE else POOLED_BUFFER_SIZE if size > 16384 else 16384
        if not self.budget.take(size):
            return None
        if size == POOLED_BUFFER_SIZE and self._pool:
            return self._pool.pop()
        return memoryview(bytearray(size))

    def copy(self, received: memoryview) -> memoryview:
        """Return a copy of received bytes, counted even beyond the budget."""
        self.budget.take_unchecked(len(received))
        return memoryview(bytearray(received))

    def give_back(self, view: memoryview) -> None:
        if len(view) == POOLED_BUFFER_SIZE and len(self._pool) < POOLED_BUFFERS_MAX:
            self._pool.append(view)
        self.budget.give_back(len(view))
