"""How much memory the indexes of sealed segments may take: beyond the bound, the ones loaded first are forgotten."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class IndexOwner(Protocol):
    def unload_indexes(self) -> None: ...


class LoadedIndexes:
    """Counts bytes; an index that is needed again is read again."""

    def __init__(self, capacity_bytes: int = 32 << 20) -> None:
        self._capacity = capacity_bytes
        self._loaded: deque[tuple[IndexOwner, int]] = deque()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def add(self, owner: IndexOwner, size: int) -> None:
        """The owner holds `size` bytes now, and could do without."""
        self._loaded.append((owner, size))
        self._bytes += size
        while self._bytes > self._capacity and len(self._loaded) > 1:
            oldest, oldest_size = self._loaded.popleft()
            self._bytes -= oldest_size
            if oldest is not owner:
                oldest.unload_indexes()
