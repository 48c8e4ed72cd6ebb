"""`preallocate` reserves disk space for the active segment, and a roll frees the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from log.tests.log_kit import TOPIC_ID, Time, append, open_directory, read_all, values

from odradek_log import reservation
from odradek_log.log import Log
from odradek_log.log_config import LogConfig

SEGMENT_BYTES = 1 << 20


def allocated_bytes(log: Log) -> list[int]:
    """Return how many bytes the disk has allocated for each segment's file."""
    paths = [Path(segment.path(".log")) for segment in log.segments]
    assert [path.stat().st_size for path in paths] == [segment.size for segment in log.segments]
    return [path.stat().st_blocks * 512 for path in paths]


@pytest.fixture
def can_reserve(tmp_path: Path) -> None:
    fd = os.open(tmp_path / ".probe", os.O_RDWR | os.O_CREAT)
    try:
        if not reservation.reserve(fd, SEGMENT_BYTES):
            pytest.skip("the file system does not reserve")
    finally:
        os.close(fd)


@pytest.mark.usefixtures("can_reserve")
def test_only_the_active_segment_has_reserved_space(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(preallocate=True, segment_bytes=SEGMENT_BYTES))
    append(log, b"a")
    assert allocated_bytes(log) == [SEGMENT_BYTES]
    log.roll()
    append(log, b"b")
    first, second = allocated_bytes(log)
    assert first < SEGMENT_BYTES == second
    log.close()
    assert max(allocated_bytes(log)) < SEGMENT_BYTES


@pytest.mark.usefixtures("can_reserve")
def test_space_reserved_before_a_crash_is_freed_at_the_roll(tmp_path: Path) -> None:
    time = Time()
    config = LogConfig(preallocate=True, segment_bytes=SEGMENT_BYTES)
    directory = open_directory(tmp_path, time)
    append(directory.create_log("t", 0, TOPIC_ID, config), b"a")
    directory.close_without_writing()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: config)
    log = directory.logs["t", 0]
    assert (values(read_all(log)), allocated_bytes(log)) == ([(0, b"a")], [SEGMENT_BYTES])
    log.roll()
    assert allocated_bytes(log)[0] < SEGMENT_BYTES


@pytest.mark.usefixtures("can_reserve")
def test_reserved_space_is_freed_after_preallocate_is_disabled(tmp_path: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=SEGMENT_BYTES)
    log = open_directory(tmp_path, Time()).create_log("t", 0, TOPIC_ID, config)
    append(log, b"a")
    log.update_config(LogConfig(segment_bytes=SEGMENT_BYTES))
    log.roll()
    append(log, b"b")
    assert max(allocated_bytes(log)) < SEGMENT_BYTES


def test_records_are_appended_when_no_space_can_be_reserved(tmp_path: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1 << 50)
    log = open_directory(tmp_path, Time()).create_log("t", 0, TOPIC_ID, config)
    append(log, b"a")
    assert values(read_all(log)) == [(0, b"a")]
    assert allocated_bytes(log)[0] < SEGMENT_BYTES, "no space stays reserved"
