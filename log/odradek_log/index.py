"""The offset index and the time index of one segment, in memory and as bytes (OffsetIndex, TimeIndex).

Offsets are relative to the base offset of the segment. The index files of the active segment lag a few entries behind
memory: recovery rebuilds them from the log, and `LogSegment` completes them when it is sealed. Kafka maps files of
`segment.index.bytes`, filled up with zeros, and trims them at the same times.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY = 8
TIME_ENTRY = 12

_TIME = struct.Struct(">qi")
_LONG = struct.Struct(">q")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """The entries (relative offset, position), both ascending; the offset is the *last* of the batch at the
    position."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """Return the position of the last entry whose offset is not above this one; 0 without one."""
        at = bisect_right(self.offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def around(self, relative_offset: int) -> tuple[int, int]:
        """Return the positions of the last indexed batch that ends below the offset (0 without one), and of the first
        one that does not (-1 without one). The batch with the offset is between them, or at the second."""
        at = bisect_left(self.offsets, relative_offset)
        positions = self.positions
        return positions[at - 1] if at else 0, positions[at] if at < len(positions) else -1

    def first_from(self, position: int) -> int | None:
        """Return the relative offset of the first entry at or after a position; None without one."""
        at = bisect_left(self.positions, position)
        return self.offsets[at] if at < len(self.positions) else None

    def truncate(self, relative_offset: int) -> None:
        """Drop entries at or above the offset."""
        at = bisect_right(self.offsets, relative_offset - 1)
        del self.offsets[at:]
        del self.positions[at:]

    def to_bytes(self, start: int = 0) -> bytes:
        """Return the bytes of the file from position `start` on."""
        offsets, positions = self.offsets, self.positions
        if start:
            offsets, positions = offsets[start // OFFSET_ENTRY :], positions[start // OFFSET_ENTRY :]
        entries = array("i", bytes(OFFSET_ENTRY * len(offsets)))
        entries[0::2] = offsets
        entries[1::2] = positions
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> OffsetIndex | None:
        """Parse a file, without the zeros of Kafka's preallocation; return None if the entries do not ascend, as after
        a crash of the machine: then the caller rebuilds the index from the log."""
        entries = array("i", data[: len(data) // OFFSET_ENTRY * OFFSET_ENTRY])
        if _SWAP:
            entries.byteswap()
        index = cls()
        index.offsets = entries[0::2]
        index.positions = entries[1::2]
        # No entry has position 0, because the first one comes after more than an interval.
        used = len(index.positions)
        if used and index.positions[-1] == 0:
            used = bisect_left(range(used), True, key=lambda i: index.positions[i] == 0)
            del index.offsets[used:]
            del index.positions[used:]
        if not _ascending(index.offsets) or not _ascending(index.positions):
            return None
        return index


class TimeIndex:
    """The entries (timestamp, relative offset), both ascending: no record up to the offset has a later timestamp."""

    __slots__ = ("last_timestamp", "raw")

    def __init__(self, raw: bytes | bytearray = b"") -> None:
        self.raw = bytearray(raw)
        self.last_timestamp = _LONG.unpack_from(self.raw, len(self.raw) - TIME_ENTRY)[0] if self.raw else -1

    def __len__(self) -> int:
        return len(self.raw) // TIME_ENTRY

    def entry(self, at: int) -> tuple[int, int]:
        timestamp, relative_offset = _TIME.unpack_from(self.raw, at * TIME_ENTRY)
        return timestamp, relative_offset

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; (-1, 0) in an empty index."""
        return self.entry(len(self) - 1) if self.raw else (-1, 0)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is above that of the last one."""
        if timestamp > self.last_timestamp:
            self.raw += _TIME.pack(timestamp, relative_offset)
            self.last_timestamp = timestamp

    def lookup(self, timestamp: int) -> int:
        """Return the relative offset of the last entry whose timestamp is not above `timestamp`; 0 without one. Records
        with at least this timestamp come after it."""
        raw = self.raw
        at = bisect_right(range(len(self)), timestamp, key=lambda i: _LONG.unpack_from(raw, i * TIME_ENTRY)[0])
        return self.entry(at - 1)[1] if at else 0

    def truncate(self, relative_offset: int) -> None:
        """Drop entries at or above the offset."""
        at = bisect_right(range(len(self)), relative_offset - 1, key=lambda i: self.entry(i)[1])
        del self.raw[at * TIME_ENTRY :]
        self.last_timestamp = self.last[0]

    def to_bytes(self, start: int = 0) -> bytes:
        """Return the bytes of the file from position `start` on."""
        return bytes(self.raw[start:])

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex | None:
        """Parse a file, without the zeros of Kafka's preallocation; return None if the entries do not ascend."""
        index = cls(data[: len(data) // TIME_ENTRY * TIME_ENTRY])
        count = len(index)
        # Timestamps ascend, so that a zero one is padding.
        if count and index.entry(count - 1)[0] == 0:
            used = bisect_left(range(count), True, key=lambda i: index.entry(i)[0] == 0)
            index = cls(index.raw[: used * TIME_ENTRY])
        first, last = index.entry(0) if index.raw else (-1, 0), index.last
        return index if last[0] >= first[0] and last[1] >= first[1] >= 0 else None


def _ascending(values: array[int]) -> bool:
    """Return whether first and last value ascend; like Kafka's sanity check, look at no others."""
    return not values or (values[0] >= 0 and values[-1] >= values[0])
