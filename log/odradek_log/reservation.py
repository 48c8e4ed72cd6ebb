"""Reserve disk space for a file that will grow (`preallocate`), without changing its length.

Kafka makes the file as long as the segment may become, and truncates it when it rolls. Here the file is only as long
as its records: it needs no truncation after a crash, and no reader gets zeros from it. This needs a system call of
Linux that Python does not have.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_KEEP_SIZE = 1


def reserve(fd: int, size: int) -> bool:
    """Reserve the first `size` bytes of the file; return whether it worked. A disk without room or support is no error:
    the file grows like any other."""
    call = _fallocate()
    if call is None:
        return False
    if call(fd, _KEEP_SIZE, 0, size) != 0:
        # Free what was reserved before the disk was full.
        os.ftruncate(fd, os.fstat(fd).st_size)
        return False
    return True


def _fallocate() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is None:
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call  # type: ignore[no-any-return]
