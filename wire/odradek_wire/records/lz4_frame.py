"""LZ4 frames as Kafka writes and reads them.

Kafka writes frame version 1, independent blocks of at most 64 KiB, and no checksum but that of the header. Its reader
rejects dependent blocks, and so does this one. Up to 0.9 the header checksum covered the magic of the frame as well
(KAFKA-3160): messages of magic 0 still have that wrong checksum, and a reader of them must ignore it.
"""

from __future__ import annotations

import struct

import cramjam

from odradek_wire.records.batch import Buffer
from odradek_wire.records.record_errors import BadCompressionError

_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS = b"\x60\x40"  # version 1, independent blocks; blocks of 64 KiB
_BLOCK_SIZE = 64 * 1024
_UNCOMPRESSED = 0x8000_0000
_UINT32 = struct.Struct("<I")
_DEFAULT_LEVEL = 9
"""Kafka's default level, which selects the fast compressor; other levels select the high compressor (KIP-390)."""


def compress(data: Buffer, level: int | None = None, *, broken_checksum: bool = False) -> bytes:
    """Compress to one frame. `broken_checksum` computes the header checksum in the wrong way of magic 0."""
    if level is not None and level != _DEFAULT_LEVEL:
        return _compress_with_level(data, level, broken_checksum)
    parts = [_FRAME_MAGIC, _FLAGS, _header_checksum(_FLAGS, broken_checksum)]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = data[start : start + _BLOCK_SIZE]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts.append(_UINT32.pack(len(packed)))
            parts.append(packed)
        else:
            parts.append(_UINT32.pack(len(block) | _UNCOMPRESSED))
            parts.append(bytes(block))
    parts.append(b"\0\0\0\0")
    return b"".join(parts)


def _compress_with_level(data: Buffer, level: int, broken_checksum: bool) -> bytes:
    """Compress by cramjam's frame writer, because its block functions have no levels. It adds a checksum to each
    block."""
    writer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    writer.compress(bytes(data))
    frame = bytes(writer.finish())
    assert (frame[4] & 0xEF, frame[5]) == (_FLAGS[0], _FLAGS[1]), f"unexpected LZ4 flags {frame[4:6].hex()}"
    return frame[:6] + _header_checksum(frame[4:6], broken_checksum) + frame[7:]


def _header_checksum(flags: bytes, broken: bool) -> bytes:
    return bytes((_xxhash32(_FRAME_MAGIC + flags if broken else flags) >> 8 & 0xFF,))


def readable_frame(data: memoryview, *, ignore_checksum: bool) -> memoryview:
    """Return the first frame, without the bytes after it, which Kafka ignores. With `ignore_checksum`, correct a wrong
    header checksum.

    Raises BadCompressionError for a frame that Kafka does not read.
    """
    if len(data) < 7 or data[:4] != _FRAME_MAGIC:
        raise BadCompressionError("not an LZ4 frame: the magic is missing")
    flags, block_descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x02:
        raise BadCompressionError(f"LZ4 frame flags {flags:#04x}: version 1 expected")
    if not flags & 0x20:
        raise BadCompressionError("LZ4 frame with dependent blocks")
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise BadCompressionError(f"LZ4 block descriptor {block_descriptor:#04x} is not valid")
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(data) <= end:
        raise BadCompressionError("LZ4 frame ends inside its header")
    data = data[: _end_of_frame(data, end + 1, flags)]
    checksum = _xxhash32(bytes(data[4:end])) >> 8 & 0xFF
    if data[end] == checksum:
        return data
    if not ignore_checksum:
        raise BadCompressionError("LZ4 frame header has a wrong checksum")
    mended = bytearray(data)
    mended[end] = checksum
    return memoryview(mended)


def _end_of_frame(data: memoryview, position: int, flags: int) -> int:
    """Return the end of the frame whose first block is at `position`. Raises BadCompressionError."""
    block_overhead = 8 if flags & 0x10 else 4
    while len(data) - position >= 4:
        size: int = _UINT32.unpack_from(data, position)[0]
        if size == 0:
            return position + (8 if flags & 0x04 else 4)
        position += (size & ~_UNCOMPRESSED) + block_overhead
    raise BadCompressionError("LZ4 frame ends before its end mark")


def _xxhash32(data: bytes) -> int:
    """Return the xxHash32 with seed 0 of fewer than 16 bytes, which is enough for a frame header."""
    assert len(data) < 16
    mask = 0xFFFF_FFFF
    whole = len(data) & ~3
    value = 0x1656_67B1 + len(data) & mask
    for start in range(0, whole, 4):
        value = value + _UINT32.unpack_from(data, start)[0] * 0xC2B2_AE3D & mask
        value = (value << 17 | value >> 15) * 0x27D4_EB2F & mask
    for byte in data[whole:]:
        value = value + byte * 0x1656_67B1 & mask
        value = (value << 11 | value >> 21) * 0x9E37_79B1 & mask
    value = (value ^ value >> 15) * 0x85EB_CA77 & mask
    value = (value ^ value >> 13) * 0xC2B2_AE3D & mask
    return value ^ value >> 16
