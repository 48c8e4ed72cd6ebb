"""Passes of the cleaner over a log, on one thread, and batches with keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from log.tests.log_kit import START_MS, read_all

from odradek_log.append import AppendInfo
from odradek_log.cleaner.cleaner import Cleaner, CleanerConfig, SegmentReplacement, log_to_clean
from odradek_log.log import Log
from odradek_log.producer_state_manager import AppendOrigin
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import end_txn_marker_batch

LIMITS = CleanerConfig(dedupe_buffer_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=4096)


def begin(log: Log, *, config: CleanerConfig = LIMITS, last_stable: int | None = None) -> Cleaner:
    """Begin a pass, over the whole log if nothing is dirty."""
    now_ms = log.env.wall_ms()
    to_clean = log_to_clean(log, log.log_end_offset if last_stable is None else last_stable, now_ms)
    if not to_clean.cleanable_bytes:
        to_clean = to_clean._replace(first_dirty_offset=log.log_start_offset)
    return Cleaner(log, to_clean, config, now_ms)


def clean(
    log: Log,
    *,
    config: CleanerConfig = LIMITS,
    last_stable: int | None = None,
    between: Callable[[], object] = lambda: None,
    slice_us: int = 100,
) -> Cleaner:
    """Run one pass; `between` is called after every slice."""
    cleaning = begin(log, config=config, last_stable=last_stable)
    cleaning.slice_us = slice_us
    slices = cleaning.slices()
    for step in slices:
        between()
        if cleaning.is_interrupted:
            cleaning.abort()
            cleaning.discard()
            return cleaning
        if isinstance(step, SegmentReplacement):
            cleaning.replace_segments(step)
    cleaning.complete()
    return cleaning


def keyed(
    *records: tuple[bytes | None, bytes | None],
    timestamp: int = START_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Return a producer's batch of these keys and values. `producer` is (id, epoch, base sequence)."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
    )
    for at, (key, value) in enumerate(records):
        builder.append(timestamp + at, key, value)
    return builder.build()


def write(log: Log, *batches: bytearray, epoch: int = 0) -> None:
    """Append batches that must be accepted."""
    for records in batches:
        assert isinstance(log.append(records, epoch), AppendInfo)


def end_transaction(log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> None:
    marker = end_txn_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=log.env.wall_ms(),
    )
    assert isinstance(log.append(marker, 0, origin=AppendOrigin.COORDINATOR), AppendInfo)


def left(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of every record that a consumer reads."""
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def last_of_each_key(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, tuple[int, bytes]]:
    """Return the last value of each key, without keys whose last record is a tombstone."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for offset, key, value in records:
        assert key is not None
        if value is None:
            found.pop(key, None)
        else:
            found[key] = (offset, value)
    return found
