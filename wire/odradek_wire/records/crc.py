"""CRC-32C (batches of magic 2) and CRC-32 (messages of magic 0 and 1) of any buffer.

google_crc32c takes only `bytes`, no memoryview, so that a view has to be copied. A copy that fits into the cache of the
processor costs little, so large views are copied and summed in pieces (measured: 15 GB/s for 1 MiB; 16 GB/s without a
copy).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import google_crc32c

# The package is typed but its C functions are not.
_value: Callable[[bytes], int] = google_crc32c.value
_extend: Callable[[int, bytes], int] = google_crc32c.extend
_PIECE = 128 * 1024


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of `data` as an unsigned number."""
    if type(data) is bytes:
        return _value(data)
    if len(data) <= _PIECE:
        return _value(bytes(data))
    view = memoryview(data)
    crc = 0
    for start in range(0, len(view), _PIECE):
        crc = _extend(crc, bytes(view[start : start + _PIECE]))
    return crc


def crc32(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 (IEEE) of `data` as an unsigned number."""
    return zlib.crc32(data)
