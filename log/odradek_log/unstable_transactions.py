"""The transactions of a partition that hold back its last stable offset (ongoingTxns and unreplicatedTxns of
ProducerStateManager).

A transaction is ongoing from its first record to its marker. After that it is unreplicated until the high watermark
passes the marker: another leader may not have the marker, so that the transaction would be ongoing again. Knows no
producers; the caller passes the high watermark.
"""

from __future__ import annotations

from collections import deque


class UnstableTransactions:
    """The ongoing and unreplicated transactions of one partition, by their first offsets."""

    __slots__ = ("_ongoing", "_unreplicated", "has_any")

    def __init__(self) -> None:
        self.has_any = False
        """Whether there are such transactions; False in most partitions, which then need no look-up."""
        # By first offset, ascending.
        self._ongoing: dict[int, None] = {}
        # (offset of the marker, first offset), both ascending. A transaction is left out if one that ended later began
        # earlier, because that one holds back the offset for longer.
        self._unreplicated: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """Return the number of transactions in memory."""
        return len(self._ongoing) + len(self._unreplicated)

    def begin(self, first_offset: int) -> None:
        """Add an ongoing transaction, whose first record is at the end of the log."""
        self._ongoing[first_offset] = None
        self.has_any = True

    def complete(self, first_offset: int, marker_offset: int) -> None:
        """Make an ongoing transaction unreplicated: its marker is at the end of the log."""
        del self._ongoing[first_offset]
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1][1] > first_offset:
            unreplicated.pop()
        unreplicated.append((marker_offset, first_offset))

    @property
    def first_ongoing_offset(self) -> int | None:
        """The first offset of the oldest ongoing transaction."""
        return next(iter(self._ongoing), None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Remove the unreplicated transactions whose markers are below the high watermark."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()
        self.has_any = bool(unreplicated or self._ongoing)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is ongoing, or whose marker is at or above the high
        watermark. Between two calls the high watermark may only grow, unless `clear` is called."""
        if self._unreplicated:
            self.on_high_watermark_updated(high_watermark)
        ongoing = self.first_ongoing_offset
        if not self._unreplicated:
            return ongoing
        unreplicated = self._unreplicated[0][1]
        return unreplicated if ongoing is None else min(unreplicated, ongoing)

    def clear(self) -> None:
        self._ongoing.clear()
        self._unreplicated.clear()
        self.has_any = False
