"""Disks in memory that may lose unsynced data in a power loss.

One tree for all hosts; the first part of a path is the host. The file system has an ordered journal of metadata, as
ext4 and XFS have: a new name survives a power loss immediately, a truncation as soon as any file on the host is synced
after it. Of its contents a file keeps the synced bytes, and any prefix of the bytes written after the sync. The time of
syncs adds up in `take_time_s`. A directory may `fail`: a full one for writes, a broken one for every operation.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable

from odradek_log.log_errors import LogDirectoryError


class _File:
    __slots__ = ("changed_from", "data", "durable", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.changed_from = 0
        """`data` and `durable` are equal up to here."""
        self.modified_ms = modified_ms

    def sync(self) -> None:
        if self.changed_from < len(self.data) or len(self.durable) != len(self.data):
            self.durable[self.changed_from :] = self.data[self.changed_from :]
            self.changed_from = len(self.data)

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.changed_from = min(self.changed_from, size)

    def commit_truncation(self) -> None:
        """Make the truncation durable."""
        del self.durable[self.changed_from :]

    def lose(self, chance: random.Random, torn: bool) -> bool:
        """Lose unsynced data in part or whole. Return whether anything was lost. `torn`: an earlier segment has lost
        data, so this one loses everything unsynced."""
        written = len(self.data)
        if self.changed_from == written == len(self.durable):
            return False
        if torn or chance.random() < 0.5:
            self.data = bytearray(self.durable)
        else:
            del self.data[chance.choice((written, chance.randint(self.changed_from, written))) :]
        self.durable = bytearray(self.data)
        self.changed_from = len(self.data)
        return len(self.data) < written


_Directory = dict[str, "_File | _Directory"]


class MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        if path in held:
            raise LogDirectoryError(f"{path} is locked")
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


class _DiskFailure:
    """The error of a directory, after `calls` more calls."""

    def __init__(self, error: int, calls: int) -> None:
        self.error = error
        self.calls = calls


class MemoryDisk:
    """Implements `odradek_log.disk.Disk`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._root: _Directory = {}
        self._open: dict[int, tuple[_File, str]] = {}
        self._descriptors = itertools.count(3)
        self._locks: set[str] = set()
        self._taken_s = 0.0
        self._truncated: dict[str, list[_File]] = {}
        self._failures: dict[str, _DiskFailure] = {}
        self.sync_s: dict[str, float] = {}
        """The mean duration of a sync by host; 1 ms for other hosts."""
        self.now_ms: Callable[[], int] = lambda: 0

    def take_time_s(self) -> float:
        """Return the time that syncs have taken since the last call."""
        taken, self._taken_s = self._taken_s, 0.0
        return taken

    def fail(self, directory: str, error: int, *, calls: int) -> None:
        """After `calls` more calls, raise OSError(error) until `heal`: for writes only if it is ENOSPC, otherwise for
        every operation in the directory."""
        self._failures[directory + "/"] = _DiskFailure(error, calls)

    def heal(self, directory: str) -> None:
        del self._failures[directory + "/"]

    def _raise_failure(self, path: str, *, writes: bool) -> None:
        for directory, failure in self._failures.items():
            if path.startswith(directory) and (writes or failure.error != errno.ENOSPC):
                failure.calls -= 1
                if failure.calls < 0:
                    raise OSError(failure.error, os.strerror(failure.error), path)

    def lose_power(self, host: str) -> int:
        """Lose unsynced data. Return the number of files that have lost data."""
        tree = self._root.get(host)
        return self._lose(tree) if isinstance(tree, dict) else 0

    def _lose(self, directory: _Directory) -> int:
        lost, torn = 0, False
        for name in sorted(directory):
            node = directory[name]
            if isinstance(node, dict):
                lost += self._lose(node)
            else:
                is_log = name.endswith(".log")
                if node.lose(self._chance, torn and is_log):
                    lost += 1
                    torn = torn or is_log
        return lost

    # -- paths --------------------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *above, name = path.strip("/").split("/")
        directory = self._root
        for part in above:
            node = directory.get(part)
            if not isinstance(node, dict):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            directory = node
        return directory, name

    def _node(self, path: str) -> _File | _Directory:
        directory, name = self._parent(path)
        node = directory.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if isinstance(node, dict):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _create(self, path: str) -> _File:
        directory, name = self._parent(path)
        file = directory[name] = _File(self.now_ms())
        return file

    def _sync(self, file: _File, path: str) -> None:
        if self._failures:
            self._raise_failure(path, writes=True)
        host = path.split("/")[1]
        for truncated in self._truncated.pop(host, ()):
            truncated.commit_truncation()
        file.sync()
        average_s = self.sync_s.get(host, 0.001)
        self._taken_s += self._chance.expovariate(1 / average_s)

    # -- Disk ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, /) -> int:
        directory, name = self._parent(path)
        node = directory.get(name)
        if self._failures:
            self._raise_failure(path, writes=node is None)
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self._create(path)
        assert not isinstance(node, dict)
        if flags & os.O_TRUNC:
            node.truncate(0)
        fd = next(self._descriptors)
        self._open[fd] = (node, path)
        return fd

    def close(self, fd: int, /) -> None:
        del self._open[fd]

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        file, path = self._open[fd]
        if self._failures:
            self._raise_failure(path, writes=False)
        return bytes(file.data[position : position + size])

    def write(self, fd: int, data: bytes | bytearray | memoryview, /) -> int:
        file, path = self._open[fd]
        if self._failures:
            try:
                self._raise_failure(path, writes=True)
            except OSError:
                if self._chance.random() < 0.5:
                    raise
                # The disk fills up within this write.
                data = data[: self._chance.randrange(max(len(data), 1))]
                if not data:
                    raise
        file.data += data
        file.modified_ms = self.now_ms()
        return len(data)

    def truncate(self, fd: int, size: int, /) -> None:
        file, path = self._open[fd]
        if self._failures:
            self._raise_failure(path, writes=True)
        file.truncate(size)
        self._truncated.setdefault(path.split("/")[1], []).append(file)

    def reserve(self, fd: int, size: int, /) -> None:
        """Do nothing: space is unlimited."""

    def sync(self, fd: int, /) -> None:
        self._sync(*self._open[fd])

    def sync_file(self, path: str, /) -> None:
        self._sync(self._file(path), path)

    def size(self, path: str, /) -> int:
        if self._failures:
            self._raise_failure(path, writes=False)
        return len(self._file(path).data)

    def names(self, directory: str, /) -> list[str]:
        if self._failures:
            self._raise_failure(directory, writes=False)
        node = self._node(directory)
        if not isinstance(node, dict):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        return list(node)

    def exists(self, path: str, /) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_directory(self, path: str, /) -> bool:
        return self.exists(path) and isinstance(self._node(path), dict)

    def modified_ms(self, path: str, /) -> int:
        node = self._node(path)
        return 0 if isinstance(node, dict) else node.modified_ms

    def make_directory(self, path: str, /) -> None:
        if self._failures:
            self._raise_failure(path, writes=True)
        directory, name = self._parent(path)
        if name in directory:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        directory[name] = {}

    def make_directories(self, path: str, /) -> None:
        directory = self._root
        for part in path.strip("/").split("/"):
            node = directory.setdefault(part, {})
            assert isinstance(node, dict)
            directory = node

    def lock(self, path: str, /) -> MemoryLock:
        return MemoryLock(self._locks, path)

    def rename(self, path: str, new_path: str, /) -> None:
        if self._failures:
            self._raise_failure(path, writes=True)
        node = self._node(path)
        directory, name = self._parent(path)
        del directory[name]
        directory, name = self._parent(new_path)
        directory[name] = node

    def remove(self, path: str, /) -> None:
        if self._failures:
            self._raise_failure(path, writes=False)
        self._file(path)
        directory, name = self._parent(path)
        del directory[name]

    def remove_tree(self, path: str, /) -> None:
        if self._failures:
            self._raise_failure(path, writes=False)
        self._node(path)
        directory, name = self._parent(path)
        del directory[name]

    def read_file(self, path: str, /) -> bytes:
        if self._failures:
            self._raise_failure(path, writes=False)
        return bytes(self._file(path).data)

    def write_file(self, path: str, data: bytes, /) -> None:
        if self._failures:
            self._raise_failure(path, writes=True)
        directory, name = self._parent(path)
        node = directory.get(name)
        file = node if isinstance(node, _File) else self._create(path)
        file.truncate(0)
        file.data += data

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        if self._failures:
            self._raise_failure(path, writes=True)
        file = self._create(path)
        file.data += data
        if sync:
            self._sync(file, path)

    def sync_directory(self, path: str, /) -> None:
        """Do nothing: names are always durable."""
