"""Room on the disk for a file that will grow (`preallocate`): blocks behind its end, while its length stays the same.

Kafka makes the file as long as the segment may become and cuts it when the segment ends. Kept as short as its records
the file needs no cutting after a crash, and nobody reads zeros from it. Only Linux can do that, by a call that Python
does not offer.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_KEEP_SIZE = 1


def reserve(fd: int, size: int) -> bool:
    """Whether the first `size` bytes of the file have their place. A disk that has no room for so much, or cannot do
    it, is no error: the file grows as any other."""
    call = _fallocate()
    if call is None:
        return False
    if call(fd, _KEEP_SIZE, 0, size) != 0:
        # What it has got before it ran out is not to be missing elsewhere.
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
