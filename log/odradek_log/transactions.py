"""Which of a partition's transactions keep the end of what is stable from moving on (ProducerStateManager).

A transaction is open from its first record to its marker. Then it is decided; but as long as the marker is not known to
be in all in-sync replicas, another leader may not have it, and the transaction would be open again. Knows no producer
and no high watermark: the one is `producer_state`'s, the other is passed in.
"""

from __future__ import annotations

from collections import deque


class Transactions:
    """The open and the lately decided transactions of one partition, by their first offsets."""

    __slots__ = ("_decided", "_open", "any")

    def __init__(self) -> None:
        self.any = False
        """Whether there are any: what most partitions are asked, and no more."""
        # In the order of their beginnings, which is that of the offsets.
        self._open: dict[int, None] = {}
        # (marker's offset, first offset), of each transaction that no later decided one began before: both ascend, and
        # the first one holds back the most.
        self._decided: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._open) + len(self._decided)

    def begin(self, first_offset: int) -> None:
        """One has its first record here, at the log's end."""
        self._open[first_offset] = None
        self.any = True

    def decide(self, first_offset: int, marker_offset: int) -> None:
        """An open one has its marker here, at the log's end."""
        del self._open[first_offset]
        decided = self._decided
        while decided and decided[-1][1] > first_offset:
            decided.pop()
        decided.append((marker_offset, first_offset))

    @property
    def first_open(self) -> int | None:
        """Where the oldest open one begins."""
        return next(iter(self._open), None)

    def replicated_to(self, high_watermark: int) -> None:
        """Forget the decided ones whose markers are in all in-sync replicas."""
        decided = self._decided
        while decided and decided[0][0] < high_watermark:
            decided.popleft()
        self.any = bool(decided or self._open)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the oldest one begins that is open, or decided by a marker at or above the high watermark. The high
        watermark never retreats (or `clear` comes first)."""
        if self._decided:
            self.replicated_to(high_watermark)
        undecided = self.first_open
        if not self._decided:
            return undecided
        decided = self._decided[0][1]
        return decided if undecided is None else min(decided, undecided)

    def clear(self) -> None:
        self._open.clear()
        self._decided.clear()
        self.any = False
