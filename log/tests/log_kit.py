"""Shared by the tests of the log: batches to append, a clock and delayed callbacks that a test moves, a log directory.

Replaces no part of `odradek_log`: the broker passes clock and delayed callbacks to a log directory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek_log.append import AppendInfo
from odradek_log.directory import LogDirectory
from odradek_log.disk import Disk, RealDisk
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_wire.records.attributes import Compression
from odradek_wire.records.batch import iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.uuid import Uuid

START_MS = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))


class Time:
    """A wall clock that a test moves, and the delayed callbacks."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def wall_ms(self) -> int:
        return self.now_ms

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._due.append((self.now_ms + delay_ms, next(self._order), callback))

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        due = sorted(entry for entry in self._due if entry[0] <= self.now_ms)
        self._due = [entry for entry in self._due if entry[0] > self.now_ms]
        for _, _, callback in due:
            callback()


class RecordingReporter:
    """A reporter that keeps its events."""

    def __init__(self) -> None:
        self.logged: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, /, **fields: object) -> None:
        self.logged.append(("info", event, fields))

    def warning(self, event: str, /, **fields: object) -> None:
        self.logged.append(("warning", event, fields))

    def error(self, event: str, /, **fields: object) -> None:
        self.logged.append(("error", event, fields))

    def events(self, level: str) -> list[str]:
        return [event for logged_level, event, _ in self.logged if logged_level == level]


def open_directory(
    path: Path,
    time: Time,
    *,
    disk: Disk | None = None,
    open_files: int = 512,
    reporter: RecordingReporter | None = None,
) -> LogDirectory:
    """Return a log directory on the test's clock; without `disk`, nothing is synced."""
    return LogDirectory.open(
        path,
        wall_ms=time.wall_ms,
        later=time.later,
        disk=disk or RealDisk(sync=False),
        open_files=open_files,
        reporter=reporter or RecordingReporter(),
    )


def batch(
    *values: bytes,
    timestamp: int = START_MS,
    step_ms: int = 0,
    key: bytes | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: Compression = Compression.NONE,
    transactional: bool = False,
) -> bytearray:
    """Return a producer's batch with these values. `producer` is (id, epoch, base sequence)."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
    )
    for at, value in enumerate(values):
        builder.append(timestamp + at * step_ms, key, value)
    return builder.build()


def append(log: Log, *values: bytes, epoch: int = 0, timestamp: int = START_MS) -> AppendInfo:
    """Append one batch that must be accepted."""
    info = log.append(batch(*values, timestamp=timestamp), epoch)
    assert isinstance(info, AppendInfo)
    return info


def read_all(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Return every record from `start` on, read slice after slice as a consumer does."""
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    while (piece := log.read(offset, max_bytes)) is not None:
        data = piece.tobytes()
        before = offset
        for header in iterate(data, allow_partial=True):
            records += [record for record in read_records(data, header) if record.offset >= offset]
            offset = header.next_offset
        assert offset > before
    return records


def values(records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
