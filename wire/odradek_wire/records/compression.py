"""The four codecs of record data, with a limit on the size of decompressed data.

Writes what Kafka's readers accept: gzip, snappy in xerial's framing, lz4 frames of independent blocks, zstd. Reads what
other clients write, too. Decompression never returns more than `limit` bytes; it may use twice that memory briefly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam

from odradek_wire.records import lz4_frame, xerial
from odradek_wire.records.attributes import Compression
from odradek_wire.records.batch import Buffer
from odradek_wire.records.record_errors import BadCompressionError, ExpansionLimitError

DEFAULT_EXPANSION_LIMIT = 128 * 1024 * 1024
"""The default limit on the decompressed size of one batch."""

_GZIP_DEFAULT_LEVEL = 6
_ZSTD_DEFAULT_LEVEL = 3
_FIRST_GUESS = 64 * 1024
_GZIP_MEMBERS_MAX = 16
"""The number of gzip members that are read: each one costs a copy of the data after it."""


def compress(codec: Compression, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress. `level` is that of `compression.<codec>.level`, None is Kafka's default. Only lz4 uses `magic`."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            # -1 is Java's "default".
            return bytes(
                cramjam.gzip.compress(data, level=_GZIP_DEFAULT_LEVEL if level is None or level < 0 else level)
            )
        case Compression.SNAPPY:
            return xerial.compress(data)
        case Compression.LZ4:
            return lz4_frame.compress(data, level, broken_checksum=magic == 0)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: Compression, data: memoryview, limit: int = DEFAULT_EXPANSION_LIMIT, *, magic: int = 2) -> bytes:
    """Decompress to at most `limit` bytes. Raises ExpansionLimitError, or BadCompressionError for malformed data."""
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise ExpansionLimitError(f"{len(data)} bytes exceed the limit of {limit}")
            return bytes(data)
        case Compression.GZIP:
            return _gunzip(data, limit)
        case Compression.SNAPPY:
            return xerial.decompress(data, limit)
        case Compression.LZ4:
            return _bounded(
                cramjam.lz4.decompress_into, lz4_frame.readable_frame(data, ignore_checksum=magic == 0), limit
            )
        case Compression.ZSTD:
            return _bounded(cramjam.zstd.decompress_into, data, limit)


def _gunzip(data: memoryview, limit: int) -> bytes:
    """Decompress gzip by zlib, which is as fast as cramjam and accepts what Java does: several members, and anything
    after the last one."""
    parts: list[bytes] = []
    left = limit
    piece = max(_FIRST_GUESS, 4 * len(data))
    for _ in range(_GZIP_MEMBERS_MAX):
        reader = zlib.decompressobj(wbits=31)
        rest: memoryview | bytes = data
        while not reader.eof:
            try:
                part = reader.decompress(rest, min(piece, left + 1))
            except zlib.error as error:
                raise BadCompressionError(f"bad gzip data: {error}") from None
            if len(part) > left:
                raise ExpansionLimitError(f"gzip data expand to more than the limit of {limit} bytes")
            rest = reader.unconsumed_tail
            if not part and not rest and not reader.eof:
                raise BadCompressionError("gzip data end before the end of the stream")
            left -= len(part)
            parts.append(part)
        data = memoryview(reader.unused_data)
        if bytes(data[:2]) != b"\x1f\x8b":
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _bounded(decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, limit: int) -> bytes:
    """Decompress into buffers that grow up to the limit: the formats need not state the decompressed size, and a stated
    size may be wrong."""
    size = min(limit, max(_FIRST_GUESS, 4 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if not _is_full(error):
                raise BadCompressionError(f"bad compressed data: {error}") from None
        else:
            with memoryview(output) as view:
                return bytes(view[:written])
        if size >= limit:
            raise ExpansionLimitError(f"{len(data)} compressed bytes expand to more than {limit}")
        del output  # before the next allocation
        size = min(limit, 4 * size)


def _is_full(error: cramjam.DecompressionError) -> bool:
    """Return whether the output buffer was too small; cramjam says so only in the text."""
    return "write whole buffer" in str(error)
