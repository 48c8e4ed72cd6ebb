"""Which leader epoch began at which offset: what a replica truncates by (KIP-101), in `leader-epoch-checkpoint`.

Owns the entries, their questions and their file's text. An epoch in which nothing was appended need not survive a crash
(nobody can ask for it), so the file is written when the first batch of an epoch arrives, and on flush and close.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from odradek_log.checkpoints import decode_lines, encode_lines
from odradek_log.log_errors import CorruptLogError

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """(epoch, start offset), both ascending."""

    __slots__ = ("_entries", "dirty", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        self.dirty = False
        """Whether the file lags behind."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def earliest(self) -> tuple[int, int] | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The epoch begins at the offset. Entries that contradict it (same or later start, same or later epoch) are
        given up, for the log says now what happened. True when anything changed."""
        if epoch < 0 or start_offset < 0 or epoch == self.latest:
            return False
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self._changed()
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which the record at `offset` was written."""
        at = bisect_right(self._entries, offset, key=_start)
        return self._entries[at - 1][0] if at else None

    def end_offset_for(self, requested: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the latest known epoch that is not above the requested one.

        (-1, -1) when that cannot be told: no epochs are known, the requested one is newer than ours or undefined. The
        end of the current epoch is the log's; an epoch before the first known ends where that begins.
        """
        if requested == UNDEFINED_EPOCH or not self._entries or requested > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested == self.latest:
            return requested, log_end_offset
        at = bisect_right(self._entries, requested, key=_epoch)
        end = self._entries[at][1]
        return (self._entries[at - 1][0] if at else requested), end

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that begin there or later are forgotten."""
        if not self._entries or self._entries[-1][1] < end_offset:
            return
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now: older epochs go, the one that covers it begins there."""
        at = bisect_right(self._entries, start_offset, key=_start)
        if at == 0 or (at == 1 and self._entries[0][1] == start_offset):
            return
        self._entries[:at] = [(self._entries[at - 1][0], start_offset)]
        self._changed()

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def encode(self) -> bytes:
        return encode_lines(f"{epoch} {start}" for epoch, start in self._entries)

    @classmethod
    def decode(cls, data: bytes, path: str) -> LeaderEpochCache:
        """The file's entries, as read: Kafka never writes them out of order."""
        entries = []
        for line in decode_lines(data, path):
            try:
                epoch, start = line.split(" ")
                entries.append((int(epoch), int(start)))
            except ValueError:
                raise CorruptLogError(f"{path}: no epoch and offset in {line!r}") from None
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            raise CorruptLogError(f"{path}: epochs are not in order: {entries}")
        return cls(entries)

    def _changed(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        self.dirty = True


def _start(entry: tuple[int, int]) -> int:
    return entry[1]


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]
