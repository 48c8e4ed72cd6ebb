"""CRC-32C (batches of magic 2) and CRC-32 (messages of magic 0 and 1) of any buffer.

The native CRC-32C takes `bytes` only, no memoryview, not even a read-only one, so a view has to be copied. A copy that
fits into the processor's cache costs little beside the checksum itself, so large views are copied and summed piece by
piece: no megabyte is ever allocated for a megabyte batch (measured: 15 GB/s for 1 MiB; 16 GB/s without a copy).
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
    """The CRC-32C (Castagnoli) of `data` as an unsigned 32-bit number."""
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
    """The CRC-32 (IEEE) of `data` as an unsigned 32-bit number."""
    return zlib.crc32(data)
