"""The index files of the active segment: Kafka's tools can read them at any time, and recovery does not need them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from log.tests.failing_disk import FailingDisk
from log.tests.log_kit import START_MS, TOPIC_ID, RecordingReporter, Time, append, batch, open_directory, read_all

from odradek_log.directory import LogDirectory
from odradek_log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from odradek_log.log import Log
from odradek_log.log_config import LogConfig

CONFIG = LogConfig(index_interval_bytes=100)
BASE = "0" * 20


def opened(path: Path) -> LogDirectory:
    directory = open_directory(path, Time())
    directory.load(lambda _: CONFIG)
    return directory


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        append(log, b"x" * 200, timestamp=START_MS + log.log_end_offset)


def assert_files_follow(log: Log, at_least: int) -> None:
    """Assert that both files have the first entries of the indexes in memory, at least `at_least`."""
    segment = log.segments.active
    offsets = Path(segment.path(".index")).read_bytes()
    times = Path(segment.path(".timeindex")).read_bytes()
    assert segment.offset_index.to_bytes().startswith(offsets)
    assert segment.time_index.to_bytes().startswith(times)
    assert len(offsets) // OFFSET_ENTRY >= at_least
    assert len(times) // TIME_ENTRY >= at_least


def test_the_first_batch_creates_empty_index_files(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    assert list((tmp_path / "t-0").glob("*index")) == []
    append(log, b"x")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "t-0").glob("*index")}
    assert sizes == {f"{BASE}.index": 0, f"{BASE}.timeindex": 0}
    log.roll()
    assert len(list((tmp_path / "t-0").glob("*index"))) == 4


def test_index_files_of_the_active_segment_lack_fewer_than_64_entries(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for _ in range(300):
        fill(log, 1)
        assert_files_follow(log, len(log.segments.active.offset_index) - 63)
    assert len(log.segments.active.offset_index) > 128


def test_a_follower_writes_the_index_files_of_its_active_segment(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    leader, follower = (directory.create_log("t", index, TOPIC_ID, CONFIG) for index in range(2))
    fill(leader, 150)
    found = leader.read(0, 1 << 20)
    assert found is not None
    assert follower.append_as_follower(found.tobytes()) is not None
    assert_files_follow(follower, 128)


@pytest.mark.parametrize("end", ["close_without_writing", "close"])
def test_a_restarted_log_appends_to_its_index_files(tmp_path: Path, end: str) -> None:
    directory = open_directory(tmp_path, Time())
    fill(directory.create_log("t", 0, TOPIC_ID, CONFIG), 100)
    getattr(directory, end)()
    log = opened(tmp_path).logs["t", 0]
    assert_files_follow(log, 99)
    fill(log, 100)
    assert_files_follow(log, 128)


@pytest.mark.parametrize("size", [None, 0, 13, 24, 5000])
def test_torn_index_files_are_repaired_at_the_start(tmp_path: Path, size: int | None) -> None:
    directory = open_directory(tmp_path, Time())
    fill(directory.create_log("t", 0, TOPIC_ID, CONFIG), 100)
    directory.close_without_writing()
    for suffix in (".index", ".timeindex"):
        path = tmp_path / "t-0" / (BASE + suffix)
        if size is None:
            path.unlink()
        else:
            os.truncate(path, size)
    assert_files_follow(opened(tmp_path).logs["t", 0], 99)


@pytest.mark.parametrize("offset", [0, 1, 70])
def test_index_files_have_no_truncated_entries(tmp_path: Path, offset: int) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    fill(log, 150)
    log.truncate_to(offset)
    assert_files_follow(log, offset - 1)
    fill(log, 150)
    assert_files_follow(log, 128)


@pytest.mark.parametrize("end", ["close", "roll"])
def test_sealed_and_rebuilt_indexes_are_equal(tmp_path: Path, end: str) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    fill(log, 100)
    getattr(directory if end == "close" else log, end)()
    directory.close_without_writing()
    files = [tmp_path / "t-0" / (BASE + suffix) for suffix in (".index", ".timeindex")]
    found = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    directory = opened(tmp_path)
    directory.close()
    assert found == [path.read_bytes() for path in files]
    offsets, times = OffsetIndex.from_bytes(found[0]), TimeIndex.from_bytes(found[1])
    assert offsets is not None
    assert times is not None
    assert (len(offsets), times.last) == (99, (START_MS + 99, 99))


def test_batches_are_appended_while_index_files_cannot_be_written(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    directory = open_directory(tmp_path, Time(), disk=disk, reporter=reporter)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    disk.fail(errno.ENOSPC, lambda _name, path, _: path.endswith("index"))
    fill(log, 100)
    assert len(read_all(log)) == 100
    disk.heal()
    fill(log, 64)
    assert_files_follow(log, 128)
    assert reporter.logged == []


def test_deleted_index_files_of_the_active_segment_are_written_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    fill(log, 70)
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    log.append(batch(b"x" * 200), 0)
    fill(log, 128)
    assert_files_follow(log, 128)
