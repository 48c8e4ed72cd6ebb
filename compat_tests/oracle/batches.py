"""Record batches and message sets for requests, built by aiokafka's builders, and the batches of responses."""

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from compat_tests.oracle.schema import Body

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CONTROL = 0x20
_HEADER = struct.Struct(">qiibIhiqqqhii")
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
    """Return a batch of format 2; `producer` is its id, epoch and first sequence."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        2, _CODECS[codec], int(transactional), producer_id, epoch, sequence, batch_size=1 << 24
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp + number, key, value, list(headers))
    return bytes(builder.build())


def message_set(values: Sequence[bytes | None], *, magic: int, key: bytes | None = None, codec: str = "none") -> bytes:
    """Return messages of format 0 or 1, wrapped in one compressed message if a codec is given."""
    builder = LegacyRecordBatchBuilder(magic, _CODECS[codec], 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, TIME + number if magic else None, key, value)
    return bytes(builder.build())


def with_bytes(data: bytes, position: int, new: bytes) -> bytes:
    """Replace some bytes without updating the CRC, which no longer fits."""
    return data[:position] + new + data[position + len(new) :]


def with_new_crc(data: bytes) -> bytes:
    """Return a format 2 batch with its CRC recomputed."""
    from crc32c import crc32c

    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def summary(response: Body) -> Body:
    """Reduce a Fetch response to the headers of its batches, without the allowed differences:

    - the timestamps of markers;
    - aborted transactions that begin after the returned records: Kafka lists those up to one of the next index entries,
      and its binary search determines which one;
    - the last stable offset of a log that begins inside a batch of an open transaction: Kafka intends to return the log
      start offset (UnifiedLog.firstUnstableOffsetMetadata), but returns the batch's base offset.
    """
    for topic in response["responses"]:
        for partition in topic["partitions"]:
            batches = partition["records"] = _batches(partition["records"] or b"")
            end = max((batch[0] + batch[1] + 1 for batch in batches), default=0)
            aborted = partition["aborted_transactions"]
            if aborted is not None:
                partition["aborted_transactions"] = [each for each in aborted if each["first_offset"] < end]
            if partition["error_code"] == 0:
                start = partition.get("log_start_offset", 0)
                partition["last_stable_offset"] = max(partition["last_stable_offset"], start)
    return response


def _batches(data: bytes) -> list[tuple[int, ...]]:
    """Return base offset, last offset delta, size, attributes, producer and CRC of each batch with a whole header."""
    found: list[tuple[int, ...]] = []
    at = 0
    while at + _HEADER.size <= len(data):
        offset, length, _, _, crc, attributes, delta, *_, producer, epoch, sequence, _ = _HEADER.unpack_from(data, at)
        whole = min(12 + length, len(data) - at)
        crc = 0 if attributes & _CONTROL else crc
        found.append((offset, delta, whole, attributes, producer, epoch, sequence, crc))
        at += whole
    return found
