"""Record batches and message sets for requests, built by aiokafka's builders, and what brokers return of them."""

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME = 1_700_000_000_000


def batch(
    values: Sequence[bytes | None],
    *,
    key: bytes | None = None,
    codec: str = "none",
    timestamp: int = TIME,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """A batch of format 2; `producer` is its id, epoch and first sequence."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        2, _CODECS[codec], int(transactional), producer_id, epoch, sequence, batch_size=1 << 24
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp + number, key, value, list(headers))
    return bytes(builder.build())


def message_set(values: Sequence[bytes | None], *, magic: int, key: bytes | None = None, codec: str = "none") -> bytes:
    """Messages of format 0 or 1, wrapped in one compressed message where a codec is named."""
    builder = LegacyRecordBatchBuilder(magic, _CODECS[codec], 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, TIME + number if magic else None, key, value)
    return bytes(builder.build())


def with_bytes(data: bytes, position: int, new: bytes) -> bytes:
    """The same bytes with some replaced, and the CRC of a format 2 batch left as it is (it no longer fits)."""
    return data[:position] + new + data[position + len(new) :]


def with_new_crc(data: bytes) -> bytes:
    """A format 2 batch whose CRC fits what it says now."""
    from crc32c import crc32c

    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
