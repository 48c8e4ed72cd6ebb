"""The open files of segments, at most a fixed number: 10,000 partitions work with 1,024 descriptors.

A segment has its `OpenFile` as an attribute, so that its use costs no look-up. At the limit, the clock algorithm evicts
a file that was not used for a round. The descriptor closes with the last reference: a response in progress keeps its
file open after eviction, rename and deletion.
"""

from __future__ import annotations

import errno
from typing import Protocol

from odradek_log.disk import Disk


class FileHolder(Protocol):
    """The owner of an open file; an eviction sets `file` to None."""

    file: OpenFile | None


class OpenFile:
    """One descriptor, which closes with its last reference."""

    __slots__ = ("_disk", "fd", "holder", "used")

    def __init__(self, disk: Disk, fd: int, holder: FileHolder) -> None:
        self._disk = disk
        self.fd = fd
        self.holder = holder
        self.used = True

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""
        self.used = True
        return self._disk.pread(self.fd, size, position)

    def __del__(self) -> None:
        self._disk.close(self.fd)


class OpenFiles:
    """The open files of segments: at most `capacity`, without those that only responses in progress still use."""

    def __init__(self, disk: Disk, capacity: int = 512) -> None:
        assert capacity > 0
        self._disk = disk
        self._capacity = capacity
        self._ring: list[OpenFile] = []
        self._hand = 0

    def __len__(self) -> int:
        return len(self._ring)

    def open(self, path: str, flags: int, holder: FileHolder) -> OpenFile:
        """Open a file and set `holder.file`; an eviction sets it to None."""
        while len(self._ring) >= self._capacity:
            self._evict()
        while True:
            try:
                fd = self._disk.open(path, flags)
                break
            except OSError as error:
                # Other parts of the process use all descriptors: close one of these.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._ring:
                    raise
                self._evict()
        file = OpenFile(self._disk, fd, holder)
        self._ring.append(file)
        holder.file = file
        return file

    def release(self, holder: FileHolder) -> None:
        """Close the file of `holder`, unless a response still has it."""
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
        # Move the last one here: the order of the ring has no meaning, and the cost must not grow with its length.
        last = self._ring.pop()
        if at < len(self._ring):
            self._ring[at] = last
