"""The four codecs of record data, with a bound on what decompression may bring into being.

The bytes written are those that Kafka's own readers accept: gzip, snappy in xerial's framing, lz4 frames of
independent blocks, zstd. Reading accepts what other clients write too. A decompression bomb costs at most `limit`
bytes; what is within the limit may for a moment take twice its size.
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
"""What a single batch may decompress to, unless the reader says otherwise."""

_GZIP_DEFAULT_LEVEL = 6
_ZSTD_DEFAULT_LEVEL = 3
_FIRST_GUESS = 64 * 1024
_MOST_MEMBERS = 16
"""More members of one gzip stream are not read: splitting it costs a copy of what is left, each time."""


def compress(codec: Compression, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress; `level` as in `compression.<codec>.level`, None for Kafka's default. `magic` matters to lz4 only."""
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
    """Decompress at most `limit` bytes: `ExpansionLimitError` beyond, `BadCompressionError` for anything broken."""
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise ExpansionLimitError(f"{len(data)} bytes, {limit} are allowed")
            return bytes(data)
        case Compression.GZIP:
            return _gunzip(data, limit)
        case Compression.SNAPPY:
            return xerial.decompress(data, limit)
        case Compression.LZ4:
            return _bounded(cramjam.lz4.decompress_into, lz4_frame.checked(data, ignore_checksum=magic == 0), limit)
        case Compression.ZSTD:
            return _bounded(cramjam.zstd.decompress_into, data, limit)


def _gunzip(data: memoryview, limit: int) -> bytes:
    """By zlib: as fast as the binding, and content with what Java's reader accepts, several members and anything behind
    the last one."""
    parts: list[bytes] = []
    piece = max(_FIRST_GUESS, 4 * len(data))
    for _ in range(_MOST_MEMBERS):
        reader = zlib.decompressobj(wbits=31)
        rest: memoryview | bytes = data
        while not reader.eof:
            try:
                part = reader.decompress(rest, min(piece, limit + 1))
            except zlib.error as error:
                raise BadCompressionError(f"bad gzip data: {error}") from None
            if len(part) > limit:
                raise ExpansionLimitError(f"{len(data)} bytes of gzip expand to more than is allowed")
            rest = reader.unconsumed_tail
            if not part and not rest and not reader.eof:
                raise BadCompressionError("gzip data end too early")
            limit -= len(part)
            parts.append(part)
        data = memoryview(reader.unused_data)
        if bytes(data[:2]) != b"\x1f\x8b":
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _bounded(decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, limit: int) -> bytes:
    """Decompress into buffers that grow up to the limit: the formats need not name their content's size, and a size
    that is named need not be true."""
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
        del output  # before the next one is made
        size = min(limit, 4 * size)


def _is_full(error: cramjam.DecompressionError) -> bool:
    """Whether the output buffer was too small; the binding has no other mark for it."""
    return "write whole buffer" in str(error)
