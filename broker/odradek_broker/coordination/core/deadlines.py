"""A queue of deadlines, and the time on both of the broker's clocks.

Owns the order of the deadlines. Leaves their meaning, and reading the clocks, to the callers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class Instant(NamedTuple):
    """One time on both of the broker's clocks: records carry the wall clock, deadlines use the clock of timeouts."""

    wall_ms: int
    monotonic_ms: int


class DeadlineQueue(Generic[K]):
    """One deadline per key. Setting a key again replaces its deadline. A later deadline for a key, as after every
    heartbeat, adds no entry to the heap."""

    __slots__ = ("_heap", "_sequence", "_when")

    def __init__(self) -> None:
        self._when: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def set(self, key: K, at_ms: int) -> None:
        before = self._when.get(key)
        self._when[key] = at_ms
        # Only an earlier deadline needs another entry: `take_due` finds a later one when the present entry is due.
        if before is None or at_ms < before:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        self._when.pop(key, None)
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._when):
            # Cancelled keys, and keys that were set again, leave outdated entries: rebuild with one entry for each key.
            self._heap = [(at_ms, sequence, key) for sequence, (key, at_ms) in enumerate(self._when.items())]
            self._sequence = len(self._heap)
            heapq.heapify(self._heap)

    def clear(self) -> None:
        self._when.clear()
        self._heap.clear()

    def next_ms(self) -> int | None:
        """Return a time at or before the next deadline; None when there is none."""
        while self._heap and self._heap[0][2] not in self._when:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[K]:
        """Remove and yield the keys with deadlines that have passed, earliest first, also those that the caller sets
        during the iteration."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            at_ms = self._when.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._push(key, at_ms)
                continue
            del self._when[key]
            yield key

    def _push(self, key: K, at_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, key))
