"""Flushes on another thread, while the log appends: all records below the recovery point are on the disk."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Thread, get_ident

import pytest
from log.tests.failing_disk import FailingDisk
from log.tests.log_kit import TOPIC_ID, RecordingReporter, Time, append, batch, open_directory

from odradek_log.directory import LogDirectory
from odradek_log.disk import RealDisk
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import LogOfflineError

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


class WatchedDisk(RealDisk):
    """Calls `meanwhile` once, during the next sync, and records the names of the files that are synced by path."""

    def __init__(self) -> None:
        super().__init__(sync=False)
        self.synced: list[str] = []
        self.meanwhile = lambda: None

    def sync(self, fd: int, /) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        super().sync(fd)

    def sync_file(self, path: str, /) -> None:
        self.synced.append(Path(path).name)
        super().sync_file(path)


def _directory(path: Path, disk: RealDisk) -> LogDirectory:
    directory = open_directory(path, Time(), disk=disk, reporter=RecordingReporter())
    directory.load(lambda _: CONFIG)
    return directory


def _log(path: Path, disk: RealDisk) -> Log:
    return _directory(path, disk).create_log("t", 0, TOPIC_ID, CONFIG)


def test_a_truncation_during_a_flush_lowers_the_recovery_point(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = _log(tmp_path, disk)
    for value in (b"a", b"b", b"c"):
        append(log, value)

    def replace_the_end() -> None:
        log.truncate_to(1)
        append(log, b"other")

    disk.meanwhile = replace_the_end
    log.flush()
    assert (log.log_end_offset, log.recovery_point) == (2, 0)
    log.flush()
    assert log.recovery_point == 2


def test_records_appended_during_a_flush_wait_for_the_next(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = _log(tmp_path, disk)
    append(log, b"a")
    disk.meanwhile = lambda: append(log, b"b") and None
    log.flush()
    assert (log.log_end_offset, log.recovery_point) == (2, 1)


def test_a_flush_syncs_producer_snapshots_and_a_roll_syncs_nothing(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = _log(tmp_path, disk)
    log.append(batch(b"a", producer=(9, 0, 0)), 0)
    log.roll()
    assert disk.synced == []
    log.flush_sealed()
    assert "00000000000000000001.snapshot" in disk.synced
    disk.synced.clear()
    log.flush_sealed()
    assert disk.synced == []


def test_a_flush_syncs_the_indexes_of_a_rolled_and_flushed_segment(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = _log(tmp_path, disk)
    append(log, b"a")
    log.flush()
    log.roll()
    assert log.recovery_point == log.segments.active.base_offset == 1
    assert log.has_unflushed_sealed
    disk.synced.clear()
    log.flush_sealed()
    assert disk.synced == ["00000000000000000000.timeindex", "00000000000000000001.snapshot"], "the other one is empty"
    assert not log.has_unflushed_sealed


def test_a_flush_ignores_the_indexes_of_a_deleted_segment(tmp_path: Path) -> None:
    log = _log(tmp_path, WatchedDisk())
    append(log, b"a")
    log.flush()
    log.roll()
    log.truncate_fully_and_start_at(7)
    log.flush_sealed()
    assert (log.offline_cause, log.has_unflushed_sealed) == (None, False)


def test_a_flush_ignores_a_deleted_snapshot(tmp_path: Path) -> None:
    log = _log(tmp_path, WatchedDisk())
    log.append(batch(b"a", producer=(9, 0, 0)), 0)
    log.roll()
    log.truncate_fully_and_start_at(7)
    log.flush()
    assert (log.offline_cause, log.recovery_point) == (None, 7)


def test_a_flush_that_fails_on_another_thread_raises_there_and_logs_once(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    log = _log(tmp_path, disk)
    append(log, b"a")
    failures: list[tuple[str, int]] = []
    log.on_failure = lambda error: failures.append((str(error.__class__.__name__), get_ident()))
    disk.fail(errno.EIO, lambda name, _path, _: name == "sync")
    threads: list[int] = []

    def flush() -> None:
        threads.append(get_ident())
        with pytest.raises(OSError, match="Input/output error"):
            log.flush()

    thread = Thread(target=flush)
    thread.start()
    thread.join()
    assert failures == [("OSError", threads[0])]
    assert isinstance(log.offline_cause, OSError)


def test_a_flush_after_a_failed_flush_raises(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    log = _log(tmp_path, disk)
    append(log, b"a")
    disk.fail(errno.EIO, lambda name, _path, _: name == "sync")
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()
    disk.heal()
    with pytest.raises(LogOfflineError, match="Input/output error"):
        log.flush()
    assert log.recovery_point == 0


def test_a_flush_of_a_closed_log_does_nothing(tmp_path: Path) -> None:
    disk = WatchedDisk()
    directory = _directory(tmp_path, disk)
    for number, end in enumerate((Log.close, Log.close_without_writing)):
        log = directory.create_log("t", number, TOPIC_ID, CONFIG)
        append(log, b"a")
        end(log)
        disk.synced.clear()
        log.flush()
        assert disk.synced == []
