"""The `.lock` of a log directory, which lets one broker at a time use it, Odradek or Kafka, in any process.

Java uses POSIX record locks, which do not conflict within a process. Linux has open file description locks, which do,
and which conflict with Java's. Other systems get the POSIX lock; Windows, which has none, gets no lock.
"""

from __future__ import annotations

import os
import struct
from types import ModuleType

from odradek_log.log_errors import LogDirectoryError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class FileLock:
    """The lock, held from construction to `release`."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock()
        except OSError:
            os.close(self._fd)
            raise LogDirectoryError(
                f"{path} is locked: another broker uses the directory; stop it or choose another directory"
            ) from None

    def _lock(self) -> None:
        if fcntl is None:
            return
        if hasattr(fcntl, "F_OFD_SETLK"):
            # struct flock: type, whence, start, length, pid (0 for this kind of lock)
            whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, whole_file)
        else:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
