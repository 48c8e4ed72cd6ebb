"""Which of a partition's transactions keep the end of what is stable from moving on (ProducerStateManager).

A transaction is open from its first record to its marker. Then it is decided; but as long as the marker is not known to
be in all in-sync replicas, another leader may not have it, and the transaction would be open again. Knows no producer
and no high watermark: the one is `producer_state_manager`'s, the other is passed in.
"""

from __future__ import annotations

from collections import deque


class UnstableTransactions:
    """The open and the lately decided transactions of one partition, by their first offsets."""

    __slots__ = ("_ongoing", "_unreplicated", "any")

    def __init__(self) -> None:
        self.any = False
        """Whether there are any: what most partitions are asked, and no more."""
        # In the order of their beginnings, which is that of the offsets.
        self._ongoing: dict[int, None] = {}
        # (marker's offset, first offset), of each transaction that no later decided one began before: both ascend, and
        # the first one holds back the most.
        self._unreplicated: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._ongoing) + len(self._unreplicated)

    def begin(self, first_offset: int) -> None:
        """One has its first record here, at the log's end."""
        self._ongoing[first_offset] = None
        self.any = True

    def complete(self, first_offset: int, marker_offset: int) -> None:
        """An open one has its marker here, at the log's end."""
        del self._ongoing[first_offset]
        decided = self._unreplicated
        while decided and decided[-1][1] > first_offset:
            decided.pop()
        decided.append((marker_offset, first_offset))

    @property
    def first_ongoing_offset(self) -> int | None:
        """Where the oldest open one begins."""
        return next(iter(self._ongoing), None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget the decided ones whose markers are in all in-sync replicas."""
        decided = self._unreplicated
        while decided and decided[0][0] < high_watermark:
            decided.popleft()
        self.any = bool(decided or self._ongoing)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest one begins that is open, or decided by a marker at or above the high watermark. The high
        watermark never retreats (or `clear` comes first)."""
        if self._unreplicated:
            self.on_high_watermark_updated(high_watermark)
        undecided = self.first_ongoing_offset
        if not self._unreplicated:
            return undecided
        decided = self._unreplicated[0][1]
        return decided if undecided is None else min(decided, undecided)

    def clear(self) -> None:
        self._ongoing.clear()
        self._unreplicated.clear()
        self.any = False
