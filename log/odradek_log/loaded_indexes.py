"""The memory of the indexes of sealed segments: above a limit, those that were loaded first are unloaded."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class IndexOwner(Protocol):
    def unload_indexes(self) -> None: ...


class LoadedIndexes:
    """The indexes in memory and their bytes; a segment loads an index again when it needs it."""

    def __init__(self, capacity_bytes: int = 32 << 20) -> None:
        self._capacity = capacity_bytes
        self._loaded: deque[tuple[IndexOwner, int]] = deque()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def add(self, owner: IndexOwner, size: int) -> None:
        """Add an owner that has loaded `size` bytes and can unload them."""
        self._loaded.append((owner, size))
        self._bytes += size
        while self._bytes > self._capacity and len(self._loaded) > 1:
            oldest, oldest_size = self._loaded.popleft()
            self._bytes -= oldest_size
            if oldest is not owner:
                oldest.unload_indexes()
