"""The start offsets of the leader epochs of a log, by which replicas truncate (KIP-101, LeaderEpochFileCache).

Owns the entries, look-ups, and the text of `leader-epoch-checkpoint`. An epoch without records need not survive a
crash, because no follower asks for it: the log writes the file with the first batch of an epoch, after a truncation and
at close.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from odradek_log.checkpoints import decode_lines, encode_lines
from odradek_log.log_errors import CorruptLogError

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """The entries (epoch, start offset), both ascending."""

    __slots__ = ("_entries", "dirty", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        self.dirty = False
        """Whether the file lacks a change."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def earliest(self) -> tuple[int, int] | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch with its start offset; remove entries with the same or a later epoch or start offset, which
        conflict with it. Return whether anything changed."""
        if epoch < 0 or start_offset < 0 or epoch == self.latest:
            return False
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self._changed()
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the leader epoch of the record at `offset`; None if unknown."""
        at = bisect_right(self._entries, offset, key=_start)
        return self._entries[at - 1][0] if at else None

    def end_offset_for(self, requested: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the latest known epoch that is not above the requested one.

        Returns (-1, -1) if there are no entries, or if the requested epoch is above the latest or undefined. The
        current epoch ends at the end of the log; an epoch before the first entry ends at the start of that one.
        """
        if requested == UNDEFINED_EPOCH or not self._entries or requested > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested == self.latest:
            return requested, log_end_offset
        at = bisect_right(self._entries, requested, key=_epoch)
        end = self._entries[at][1]
        return (self._entries[at - 1][0] if at else requested), end

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after the new end of the log."""
        if not self._entries or self._entries[-1][1] < end_offset:
            return
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs before the new start of the log; the epoch that includes it begins there."""
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
        """Parse the file. Raises CorruptLogError, also if the entries do not ascend."""
        entries = []
        for line in decode_lines(data, path):
            try:
                epoch, start = line.split(" ")
                entries.append((int(epoch), int(start)))
            except ValueError:
                raise CorruptLogError(f"{path}: expected epoch and offset, got {line!r}") from None
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            raise CorruptLogError(f"{path}: epochs do not ascend: {entries}")
        return cls(entries)

    def _changed(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        self.dirty = True


def _start(entry: tuple[int, int]) -> int:
    return entry[1]


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]
