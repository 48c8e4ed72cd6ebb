"""Descriptors, fewer than segments: 10,000 partitions work with 1,024 of them.

A segment holds its `OpenFile` directly, so that using one costs an attribute; when the bound is reached, a clock hand
takes the file away from the segment that has not used it for a round. The descriptor closes when nobody refers to it
any more: an answer on its way to a client keeps its file open, evicted, renamed or deleted.
"""

from __future__ import annotations

import errno
from typing import Protocol

from odradek_log.disk import Disk


class FileHolder(Protocol):
    """Who keeps an open file and loses it when descriptors are short."""

    file: OpenFile | None


class OpenFile:
    """One descriptor; closes with its last reference."""

    __slots__ = ("_disk", "fd", "holder", "used")

    def __init__(self, disk: Disk, fd: int, holder: FileHolder) -> None:
        self._disk = disk
        self.fd = fd
        self.holder = holder
        self.used = True

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        self.used = True
        return self._disk.pread(self.fd, size, position)

    def __del__(self) -> None:
        self._disk.close(self.fd)


class OpenFiles:
    """At most `capacity` descriptors held by segments (and as many more as answers under way still need)."""

    def __init__(self, disk: Disk, capacity: int = 512) -> None:
        assert capacity > 0
        self._disk = disk
        self._capacity = capacity
        self._ring: list[OpenFile] = []
        self._hand = 0

    def __len__(self) -> int:
        return len(self._ring)

    def open(self, path: str, flags: int, holder: FileHolder) -> OpenFile:
        """Open for `holder`, which stores the result in `holder.file` and forgets it when it is evicted."""
        while len(self._ring) >= self._capacity:
            self._evict()
        while True:
            try:
                fd = self._disk.open(path, flags)
                break
            except OSError as error:
                # Somebody else in the process uses the descriptors up; ours are the ones we can give back.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._ring:
                    raise
                self._evict()
        file = OpenFile(self._disk, fd, holder)
        self._ring.append(file)
        holder.file = file
        return file

    def release(self, holder: FileHolder) -> None:
        """The holder is done with its file (closed, deleted)."""
        file = holder.file
        if file is None:
            return
        holder.file = None
        self._drop(self._ring.index(file))

    def _evict(self) -> None:
        ring = self._ring
        while True:
            self._hand = self._hand % len(ring)
            file = ring[self._hand]
            if file.used:
                file.used = False
                self._hand += 1
                continue
            file.holder.file = None
            self._drop(self._hand)
            return

    def _drop(self, at: int) -> None:
        # The last one takes the place: the ring's order means nothing, and a removal must not cost its length.
        last = self._ring.pop()
        if at < len(self._ring):
            self._ring[at] = last
