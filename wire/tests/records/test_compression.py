"""The codecs: the framing of other writers, damaged data, and the limit on decompressed data."""

import gzip
import random
import struct
import time
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.records.attributes import Compression
from odradek_wire.records.compression import compress, decompress
from odradek_wire.records.record_errors import CorruptRecordError, ExpansionLimitError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
LZ4_HEADER = bytes.fromhex("04224d186040")


@given(st.sampled_from(Compression), st.binary(max_size=200_000), st.sampled_from([0, 1, 2]))
def test_compressed_data_decompress_to_the_same_bytes(codec: Compression, data: bytes, magic: int) -> None:
    assert decompress(codec, memoryview(compress(codec, data, magic=magic)), magic=magic) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, [-1, 1, 9]), (Compression.LZ4, [1, 9, 17]), (Compression.ZSTD, [-131072, 1, 3, 22])],
)
def test_every_level_of_kafka_works(codec: Compression, levels: list[int]) -> None:
    data = b"".join(b"%d," % number for number in range(20_000))
    sizes = []
    for level in levels:
        packed = compress(codec, memoryview(bytearray(data)), level)
        assert decompress(codec, memoryview(packed)) == data
        sizes.append(len(packed))
    assert len(set(sizes)) > 1


def test_xerial_streams_have_blocks_of_32_kib_and_may_be_joined() -> None:
    packed = compress(Compression.SNAPPY, bytes(70_000))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    lengths, position = [], 16
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        lengths.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert lengths == [32768, 32768, 70_000 - 65536]
    joined = packed + compress(Compression.SNAPPY, b"tail")
    assert decompress(Compression.SNAPPY, memoryview(joined)) == bytes(70_000) + b"tail"


def test_plain_snappy_is_read_too() -> None:
    data = b"abc" * 50_000
    assert decompress(Compression.SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(data)))) == data


def test_lz4_frames_have_kafkas_flags_and_the_right_header_checksum() -> None:
    packed = compress(Compression.LZ4, b"x" * 100_000)
    assert packed[:7] == LZ4_HEADER + b"\x82"
    assert bytes(cramjam.lz4.decompress(packed)) == b"x" * 100_000


def test_lz4_blocks_that_do_not_shrink_are_stored() -> None:
    data = random.Random(1).randbytes(1000)
    packed = compress(Compression.LZ4, data)
    assert struct.unpack_from("<I", packed, 7)[0] == len(data) | 0x8000_0000
    assert decompress(Compression.LZ4, memoryview(packed)) == data


def test_the_old_lz4_checksum_is_written_and_ignored_only_in_magic_0() -> None:
    old, new = compress(Compression.LZ4, b"data", magic=0), compress(Compression.LZ4, b"data", magic=1)
    assert (old[:6], old[7:]) == (new[:6], new[7:])
    assert old[6] != new[6]
    assert decompress(Compression.LZ4, memoryview(old), magic=0) == b"data"
    assert decompress(Compression.LZ4, memoryview(new), magic=0) == b"data"
    for magic in (1, 2):
        with pytest.raises(CorruptRecordError, match="checksum"):
            decompress(Compression.LZ4, memoryview(old), magic=magic)


def test_lz4_frames_with_dependent_blocks_are_rejected_like_in_kafka() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=True)
    compressor.compress(b"abc" * 100_000)
    with pytest.raises(CorruptRecordError, match="dependent"):
        decompress(Compression.LZ4, memoryview(bytes(compressor.finish())))


def test_lz4_frames_of_other_writers_are_read() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=True)
    compressor.compress(b"abc" * 100_000)
    assert decompress(Compression.LZ4, memoryview(bytes(compressor.finish()))) == b"abc" * 100_000


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY])
def test_bytes_after_the_compressed_data_are_ignored_like_in_kafka(codec: Compression) -> None:
    data = random.Random(1).randbytes(100_000) + bytes(100_000)
    assert decompress(codec, memoryview(compress(codec, data) + b"\0ab")) == data


def test_many_gzip_members_cost_no_more_than_a_few() -> None:
    started = time.process_time()
    decompress(Compression.GZIP, memoryview(gzip.compress(b"") * 50_000))
    assert time.process_time() - started < 5


def test_gzip_of_other_writers_is_read() -> None:
    assert decompress(Compression.GZIP, memoryview(gzip.compress(b"data") + gzip.compress(b" more"))) == b"data more"


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_is_cut_off_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 100)
    for kept in (0, 1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptRecordError):
            decompress(codec, memoryview(packed)[:kept])


@pytest.mark.parametrize("codec", CODECS)
def test_output_that_needs_several_tries_is_complete(codec: Compression) -> None:
    data = bytes(3_000_000)
    assert decompress(codec, memoryview(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_is_rejected_within_the_memory_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(100 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ExpansionLimitError):
            decompress(codec, memoryview(bomb), 8 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 9 << 20


def test_a_snappy_block_cannot_claim_more_than_snappy_can_pack() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Compression.SNAPPY, memoryview(b"\xff\xff\xff\x3f" + bytes(20)), 1 << 30)


def test_a_zstd_frame_cannot_ask_for_a_huge_window() -> None:
    frame = bytes.fromhex("28b52ffd") + bytes((0x00, 25 << 3)) + b"\x01\x00\x00"
    with pytest.raises(CorruptRecordError):
        decompress(Compression.ZSTD, memoryview(frame))
