"""Snappy as Kafka uses it: the stream format of the xerial library, and the plain format of other writers.

A stream is the header below, then blocks: a big-endian int32 length and that many bytes of plain snappy. Several
streams may follow each other, each with its own header. Data without that header are one plain snappy block, as some
other clients write.
"""

from __future__ import annotations

import struct

import cramjam

from odradek_wire.records.batch import Buffer
from odradek_wire.records.record_errors import BadCompressionError, ExpansionLimitError

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_INT32 = struct.Struct(">i")
_BLOCK_SIZE = 32 * 1024


def compress(data: Buffer) -> bytes:
    """Compress to a xerial stream of blocks of 32 KiB, as the Java client does."""
    parts: list[bytes] = [_HEADER]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: memoryview, limit: int) -> bytes:
    """Decompress streams, or one plain block, to at most `limit` bytes. Raises CorruptRecordError."""
    if data[: len(_MAGIC)] != _MAGIC:
        return _block(data, limit)
    parts: list[bytes] = []
    position = len(_HEADER)
    end = len(data)
    while position < end:
        if data[position : position + len(_MAGIC)] == _MAGIC:
            position += len(_HEADER)
            continue
        if end - position < 4:
            break  # Kafka's reader ignores these bytes too
        length: int = _INT32.unpack_from(data, position)[0]
        position += 4
        if length < 0 or length > end - position:
            raise BadCompressionError(f"snappy block of {length} bytes, {end - position} are left")
        part = _block(data[position : position + length], limit)
        limit -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _block(data: memoryview, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise ExpansionLimitError(f"snappy block expands to {size} bytes, more than the limit of {limit}")
        # A snappy element yields at most 64 bytes and takes at least 2.
        if size > 32 * len(data) + 64:
            raise BadCompressionError(f"snappy block of {len(data)} bytes claims to expand to {size}")
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise BadCompressionError(f"bad snappy data: {error}") from None
    if written != size:
        raise BadCompressionError(f"snappy block claims {size} bytes and has {written}")
    return bytes(output)
