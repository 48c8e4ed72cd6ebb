"""The port to the file system: all calls with which a log uses its disk, so that a test or a simulation can make one
fail.

`RealDisk` is the file system of the operating system. The methods are as simple as those of `os`; descriptors are
integers, because the broker sends slices of files by `sendfile`. All methods raise OSError.
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
"""The same, and create the file if it is missing."""
READ = os.O_RDONLY | _BINARY
_sync_data = getattr(os, "fdatasync", os.fsync)
"""Forces the data and the size of a file to the disk."""
_REPLACE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY


class Lock(Protocol):
    """The lock of a directory, held until its release."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, as far as logs use it."""

    def open(self, path: str, flags: int, /) -> int: ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, size: int, position: int, /) -> bytes: ...

    def write(self, fd: int, data: bytes | bytearray | memoryview, /) -> int:
        """Append to the file; return how many bytes were written, which may be fewer than those of `data`."""

    def truncate(self, fd: int, size: int, /) -> None:
        """Truncate the file, and free the room that was reserved for it."""

    def reserve(self, fd: int, size: int, /) -> None:
        """Reserve room for a file of `size` bytes without making it longer, if the disk has it and the system can."""

    def sync(self, fd: int, /) -> None: ...

    def sync_file(self, path: str, /) -> None:
        """Sync a file that is not open."""

    def size(self, path: str, /) -> int: ...

    def names(self, directory: str, /) -> list[str]: ...

    def exists(self, path: str, /) -> bool: ...

    def is_directory(self, path: str, /) -> bool: ...

    def modified_ms(self, path: str, /) -> int: ...

    def make_directory(self, path: str, /) -> None: ...

    def make_directories(self, path: str, /) -> None:
        """Create the directory and its missing parents."""

    def lock(self, path: str, /) -> Lock:
        """Lock a file, and create it if it is missing. Raises LogDirectoryError if another process has the lock."""

    def rename(self, path: str, new_path: str, /) -> None: ...

    def remove(self, path: str, /) -> None: ...

    def remove_tree(self, path: str, /) -> None: ...

    def read_file(self, path: str, /) -> bytes: ...

    def write_file(self, path: str, data: bytes, /) -> None:
        """Create a file or replace its content; after a crash the file may have a part of `data`."""

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        """Write `path`.tmp, sync it unless `sync` is false, and rename it, so that a crash leaves the old or the new
        content; without the sync a power loss may leave a part of the new one."""

    def sync_directory(self, path: str, /) -> None: ...


def _seek_and_read(fd: int, size: int, position: int, /) -> bytes:
    """Read on Windows, by moving the position of the descriptor: all writes append, so that they do not use it."""
    os.lseek(fd, position, os.SEEK_SET)
    return os.read(fd, size)


class RealDisk:
    """The file system of the operating system. `sync=False` forces nothing to the disk, for the data of tests: a crash
    of the process loses nothing, one of the machine may."""

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
        # Imported here, because few topics preallocate.
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
        # Imported here, because it imports compression libraries.
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
    """Append all of `data`, with more writes after a short one. Raises OSError."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view)
        if written == 0:
            raise OSError(errno.EIO, "the file accepts no more bytes")
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
    """Make `data` the content of a file. If the file is a prefix of it, append the rest, because truncating a file and
    writing it again takes milliseconds on ext4."""
    try:
        existing = disk.read_file(path)
    except FileNotFoundError:
        existing = None
    if existing is None or not data.startswith(existing):
        disk.write_file(path, data)
    else:
        append_to_file(disk, path, data[len(existing) :])
