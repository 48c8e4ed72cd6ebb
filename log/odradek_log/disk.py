"""The port to the file system: every call by which a log touches its disk, so that a test or a simulation can fail one.

`RealDisk` is the operating system. The methods are few and as bare as `os`; descriptors are plain integers, because the
broker sends slices of files by `sendfile`. All of them raise `OSError`.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from odradek_log.file_lock import FileLock

_BINARY: int = getattr(os, "O_BINARY", 0)
APPEND = os.O_RDWR | os.O_APPEND | _BINARY
"""Open an existing file for reading and appending."""
CREATE = APPEND | os.O_CREAT
"""The same, creating it."""
READ = os.O_RDONLY | _BINARY
_sync_data = getattr(os, "fdatasync", os.fsync)
"""All that reading the data again takes, the file's size with it."""
_REPLACE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY


class Lock(Protocol):
    """A directory's lock, held until it is released."""

    def release(self) -> None: ...


class Disk(Protocol):
    """What a log asks of a file system."""

    def open(self, path: str, flags: int, /) -> int: ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, size: int, position: int, /) -> bytes: ...

    def write(self, fd: int, data: bytes | bytearray | memoryview, /) -> int:
        """Append; may write less than asked, as the operating system may."""

    def truncate(self, fd: int, size: int, /) -> None:
        """Cut the file; also what was reserved for it goes."""

    def reserve(self, fd: int, size: int, /) -> None:
        """Keep room for a file that will have so many bytes, without making it longer, if there is and if the operating
        system can."""

    def sync(self, fd: int, /) -> None: ...

    def sync_file(self, path: str, /) -> None:
        """Sync a file that nobody has open."""

    def size(self, path: str, /) -> int: ...

    def names(self, directory: str, /) -> list[str]: ...

    def exists(self, path: str, /) -> bool: ...

    def is_directory(self, path: str, /) -> bool: ...

    def modified_ms(self, path: str, /) -> int: ...

    def make_directory(self, path: str, /) -> None: ...

    def make_directories(self, path: str, /) -> None:
        """The directory and those above it, as far as they are missing."""

    def lock(self, path: str, /) -> Lock:
        """Lock by a file, which is made if need be. Raises LogDirectoryError when somebody else holds the lock."""

    def rename(self, path: str, new_path: str, /) -> None: ...

    def remove(self, path: str, /) -> None: ...

    def remove_tree(self, path: str, /) -> None: ...

    def read_file(self, path: str, /) -> bytes: ...

    def write_file(self, path: str, data: bytes, /) -> None:
        """Create or replace a file in place; a crash may leave a part of it."""

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        """Write `path`.tmp, sync, rename: readers and crashes see the old or the new content, whole."""

    def sync_directory(self, path: str, /) -> None: ...


def _seek_and_read(fd: int, size: int, position: int, /) -> bytes:
    """For Windows: the position is the descriptor's own, but every write of ours appends."""
    os.lseek(fd, position, os.SEEK_SET)
    return os.read(fd, size)


class RealDisk:
    """The operating system's files. With `sync=False` nothing is forced to the platter: for brokers whose data dies
    with the test; a crash of the process still loses nothing."""

    write = staticmethod(os.write)
    close = staticmethod(os.close)
    truncate = staticmethod(os.ftruncate)
    names = staticmethod(os.listdir)
    exists = staticmethod(os.path.exists)
    is_directory = staticmethod(os.path.isdir)
    make_directory = staticmethod(os.mkdir)
    lock = staticmethod(FileLock)
    rename = staticmethod(os.rename)
    remove = staticmethod(os.remove)

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync

    def open(self, path: str, flags: int, /) -> int:
        return os.open(path, flags, 0o644)

    pread = staticmethod(os.pread if hasattr(os, "pread") else _seek_and_read)

    def reserve(self, fd: int, size: int, /) -> None:
        # Hardly anybody asks for it.
        from odradek_log.reservation import reserve

        reserve(fd, size)

    def sync(self, fd: int, /) -> None:
        if self._sync:
            _sync_data(fd)

    def sync_file(self, path: str, /) -> None:
        if self._sync:
            fd = self.open(path, APPEND)
            try:
                _sync_data(fd)
            finally:
                os.close(fd)

    def make_directories(self, path: str, /) -> None:
        os.makedirs(path, exist_ok=True)

    def size(self, path: str, /) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str, /) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def remove_tree(self, path: str, /) -> None:
        # Brings compression libraries along that a start has no use for.
        import shutil

        shutil.rmtree(path)

    def read_file(self, path: str, /) -> bytes:
        fd = os.open(path, READ)
        try:
            chunks = []
            while chunk := os.read(fd, 1 << 20):
                chunks.append(chunk)
        finally:
            os.close(fd)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def write_file(self, path: str, data: bytes, /) -> None:
        fd = os.open(path, _REPLACE, 0o644)
        try:
            write_all(self, fd, data)
        finally:
            os.close(fd)

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, _REPLACE, 0o644)
        try:
            write_all(self, fd, data)
            if sync:
                self.sync(fd)
        except OSError:
            os.remove(temporary)
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str, /) -> None:
        if not self._sync or os.name == "nt":
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(disk: Disk, fd: int, data: bytes | bytearray | memoryview) -> None:
    """Append all of `data`, going on after a short write."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view)
        if written == 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        view = view[written:]


def append_to_file(disk: Disk, path: str, data: bytes) -> None:
    """Append to a file that is not open and must exist."""
    if data:
        fd = disk.open(path, APPEND)
        try:
            write_all(disk, fd, data)
        finally:
            disk.close(fd)


def complete_file(disk: Disk, path: str, data: bytes) -> None:
    """Make `data` the content of a file, and append only what it lacks when it has the beginning. (To truncate a file
    and write it again takes milliseconds on ext4.)"""
    try:
        there = disk.read_file(path)
    except FileNotFoundError:
        there = None
    if there is None or not data.startswith(there):
        disk.write_file(path, data)
    else:
        append_to_file(disk, path, data[len(there) :])
