"""Fifty thousand damaged buffers: readers raise only `CorruptRecordError`, and end in bounded time.

Each damaged buffer is read again with a valid length and CRC, so that it passes the first check.
"""

import contextlib
import random
import time
import zlib
from collections.abc import Callable

import pytest

from odradek_wire.records import batch, conversion, legacy
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import build_batch
from odradek_wire.records.control import decode_control_record, end_txn_marker_batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import ValidationRules, validate
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import CorruptRecordError, UnsupportedRecordsError

SEED = 20261121
LIMIT = 200_000
STRICT = ValidationRules(strict=True, compacted=True, timestamp_before_max_ms=1000, expansion_limit=LIMIT)
REWRITING = ValidationRules(
    compression=Compression.ZSTD, from_client=False, timestamp_after_max_ms=1 << 62, expansion_limit=LIMIT
)


def seeds() -> list[bytes]:
    records = [
        Record(0, 1_700_000_000_000, b"key", b"value" * 4, (("header", b"x"), ("", None))),
        Record(1, 1_700_000_000_007, None, b"value" * 4),
        Record(2, 1_600_000_000_000, b"", None),
    ]
    found = [bytes(build_batch(records, compression=codec)) for codec in Compression]
    found.append(
        bytes(end_txn_marker_batch(commit=False, coordinator_epoch=1, producer_id=1, producer_epoch=0, timestamp=1))
    )
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            found.append(bytes(legacy.build_message_set(records, magic=magic, compression=codec)))
    return found


def damage(chance: random.Random, data: bytes) -> bytearray:
    """Return the data with one to three changes: another byte, or a piece removed, repeated or overwritten."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if not damaged:
            break
        position = chance.randrange(len(damaged))
        match chance.randrange(6):
            case 0 | 1 | 2:
                damaged[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 3:
                del damaged[position : position + chance.randint(1, 8)]
            case 4:
                damaged[position:position] = damaged[position : position + chance.randint(1, 8)]
            case 5:
                width = chance.choice((2, 4, 8))
                damaged[position : position + width] = chance.choice((b"\x7f", b"\xff", b"\x80")) + b"\xff" * (
                    width - 1
                )
    return damaged


def with_valid_crc(damaged: bytearray) -> bytearray:
    """Set the length and the CRC that the other bytes need; return the buffer."""
    if len(damaged) < 26:
        return damaged
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    if damaged[16] == 2:
        damaged[17:21] = crc32c(damaged[21:]).to_bytes(4, "big")
    else:
        damaged[12:16] = zlib.crc32(damaged[16:]).to_bytes(4, "big")
    return damaged


def read_batches(data: bytearray) -> None:
    for header in batch.iterate(data):
        for record in read_records(data, header, LIMIT):
            if header.is_control:
                decode_control_record(record)


READERS: list[Callable[[bytearray], object]] = [
    read_batches,
    batch.validate,
    lambda data: list(batch.iterate(data, allow_partial=True)),
    lambda data: list(legacy.read_message_set(data, LIMIT)),
    lambda data: list(conversion.read_any(data, LIMIT, allow_partial=True)),
    lambda data: conversion.down_convert(data, 0, limit=LIMIT),
    lambda data: conversion.down_convert(data, 1, limit=LIMIT),
    lambda data: validate(data, STRICT, 1_700_000_000_000),
    lambda data: validate(data, REWRITING, 1_700_000_000_000),
]


def feed(chance: random.Random, data: bytearray) -> None:
    for reader in (*chance.sample(READERS, 2), READERS[0]):
        with contextlib.suppress(CorruptRecordError, UnsupportedRecordsError):
            reader(data)


def run(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    originals = seeds()
    for _ in range(rounds):
        damaged = damage(chance, chance.choice(originals))
        try:
            feed(chance, damaged)
            feed(chance, with_valid_crc(damaged))
        except Exception as error:
            error.add_note(f"input: {damaged.hex()}")
            raise


def test_damaged_buffers_raise_nothing_but_corrupt_record_error() -> None:
    started = time.process_time()
    run(SEED, 50_000)
    assert time.process_time() - started < 60


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_many_more_damaged_buffers(seed: int) -> None:
    run(seed, 100_000)
