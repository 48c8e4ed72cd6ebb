"""A full, read-only or failing disk: one partition goes offline with one line in the log, the others are served, and no
acknowledged record is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from log.tests.failing_disk import FailingDisk
from log.tests.log_kit import (
    START_MS,
    TOPIC_ID,
    RecordingReporter,
    Time,
    append,
    batch,
    open_directory,
    read_all,
    values,
)

from odradek_log.append import AppendInfo
from odradek_log.directory import LogDirectory
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import LogDirectoryError, LogOfflineError

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=1500)


def _directory(path: Path, disk: FailingDisk, reporter: RecordingReporter | None = None) -> LogDirectory:
    directory = open_directory(path, Time(), disk=disk, reporter=reporter)
    directory.load(lambda _: CONFIG)
    return directory


def test_a_full_disk_takes_one_partition_offline_and_loses_nothing(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    directory = _directory(tmp_path, disk, reporter)
    full = directory.create_log("full", 0, TOPIC_ID, CONFIG)
    other = directory.create_log("other", 0, TOPIC_ID, CONFIG)
    append(full, b"kept")
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "write" and "full-0" in path)
    with pytest.raises(OSError, match="No space left"):
        full.append(batch(b"lost"), 0)
    with pytest.raises(LogOfflineError, match="No space left"):
        full.append(batch(b"refused"), 0)
    with pytest.raises(LogOfflineError, match="No space left"):
        full.read(0, 1000)
    for call in (
        full.roll,
        full.offset_of_max_timestamp,
        lambda: full.truncate_to(0),
        lambda: full.delete_old_segments(1),
    ):
        with pytest.raises(LogOfflineError, match="No space left"):
            call()
    assert append(other, b"served").first_offset == 0
    assert values(read_all(other)) == [(0, b"served")]
    assert reporter.logged == [
        (
            "error",
            "partition goes offline",
            {
                "partition": "full-0",
                "directory": str(tmp_path / "full-0"),
                "operation": "append",
                "error": f"OSError: [Errno 28] No space left on device: '{tmp_path}/full-0/00000000000000000000.log'",
            },
        )
    ]
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    disk.heal()
    assert values(read_all(_directory(tmp_path, disk).logs["full", 0])) == [(0, b"kept")]


def test_a_partial_batch_on_a_full_disk_is_truncated(tmp_path: Path) -> None:
    class NearlyFull(FailingDisk):
        def __init__(self) -> None:
            super().__init__(tmp_path)
            whole = self.write
            self.room = 1 << 30

            def write(fd: int, data: bytes | bytearray | memoryview, /) -> int:
                if self.room == 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                taken = whole(fd, memoryview(data)[: self.room])
                self.room -= taken
                return taken

            self.write = write  # type: ignore[method-assign]

    disk = NearlyFull()
    directory = _directory(tmp_path, disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"kept")
    size = (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size
    disk.room = 40
    with pytest.raises(OSError, match="No space left"):
        log.append(batch(b"torn"), 0)
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == size


def _work(directory: LogDirectory) -> list[bytes]:
    """Append to `t-0` and `t-1`, with rolls, reads and a flush; return the values that `t-0` acknowledged."""
    acknowledged: list[bytes] = []
    log, other = directory.logs["t", 0], directory.logs["t", 1]
    with suppress(OSError):
        for number in range(12):
            value = b"value %d" % number
            if isinstance(log.append(batch(value, timestamp=START_MS + number), number // 4), AppendInfo):
                acknowledged.append(value)
            if number == 5:
                log.flush()
            if number == 8:
                read_all(log)
    for number in range(3):
        append(other, b"other %d" % number)
    return acknowledged


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_acknowledged_records_survive_a_failure_of_any_disk_call(tmp_path: Path, error: int) -> None:
    disk = FailingDisk(tmp_path)
    calls = 1 << 30
    number = 0
    while number < calls:
        path = tmp_path / str(number)
        directory = _directory(path, disk)
        directory.create_log("t", 0, TOPIC_ID, CONFIG)
        directory.create_log("t", 1, TOPIC_ID, CONFIG)
        begun = len(disk.calls)
        disk.fail(error, lambda _name, failing, at, wanted=begun + number + 1: "/t-0" in failing and at == wanted)
        acknowledged = _work(directory)
        disk.heal()
        calls = len(disk.calls) - begun
        directory.close_without_writing()
        directory = _directory(path, disk)
        assert directory.failed == {}
        assert [record.value for record in read_all(directory.logs["t", 0])] == acknowledged
        assert len(read_all(directory.logs["t", 1])) == 3
        directory.close_without_writing()
        number += 1
    assert calls > 40


def test_a_partition_with_an_unreadable_directory_fails_at_start(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    directory = _directory(tmp_path, disk)
    for topic in ("a", "b"):
        append(directory.create_log(topic, 0, TOPIC_ID, CONFIG), b"x")
    directory.close()
    disk.fail(errno.EIO, lambda name, path, _: name == "names" and path.endswith("a-0"))
    directory = _directory(tmp_path, disk, reporter)
    assert list(directory.failed) == [("a", 0)]
    assert list(directory.logs) == [("b", 0)]
    assert reporter.events("error") == ["partition stays offline"]


def test_a_partition_that_cannot_be_created_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = _directory(tmp_path, disk)
    for call in ("make_directory", "write_file"):
        disk.fail(errno.EACCES, lambda name, _path, _, call=call: name == call)
        with pytest.raises(PermissionError):
            directory.create_log("t", 0, TOPIC_ID, CONFIG)
        assert directory.logs == {}
        disk.heal()
    assert append(directory.create_log("t", 0, TOPIC_ID, CONFIG), b"a").first_offset == 0


def test_a_directory_in_use_is_rejected_in_the_same_process_too(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    with pytest.raises(LogDirectoryError, match="is locked"):
        open_directory(tmp_path, Time())
    directory.close()
    open_directory(tmp_path, Time()).close()


def test_a_checkpoint_that_cannot_be_written_keeps_its_content(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    directory = _directory(tmp_path, disk, reporter)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"a")
    directory.prepare_high_watermarks({("t", 0): 1})
    directory.write_high_watermarks()
    disk.fail(errno.ENOSPC, lambda name, _path, _: name == "replace_file")
    directory.prepare_high_watermarks({("t", 0): 2})
    directory.write_high_watermarks()
    directory.prepare_checkpoints()
    assert not directory.write_checkpoints()
    assert directory.high_watermarks() == {("t", 0): 1}
    assert append(log, b"b").first_offset == 1
    assert reporter.events("error") == ["failed to write a checkpoint"] * 3
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_checkpoints_keep_the_offsets_of_failed_partitions(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = _directory(tmp_path, disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"a", b"b")
    log.advance_log_start_offset(1)
    directory.close()
    disk.fail(errno.EIO, lambda name, path, _: name == "names" and path.endswith("t-0"))
    directory = _directory(tmp_path, disk)
    assert list(directory.failed) == [("t", 0)]
    directory.close()
    disk.heal()
    assert _directory(tmp_path, disk).logs["t", 0].log_start_offset == 1


def test_a_log_whose_recovery_failed_is_recovered_at_the_next_start(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = _directory(tmp_path, disk)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG), b"kept")
    directory.close_without_writing()
    with (tmp_path / "t-0" / "00000000000000000000.log").open("ab") as file:
        file.write(batch(b"torn")[:-1])
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "truncate" and "t-0" in path)
    directory = _directory(tmp_path, disk)
    assert list(directory.failed) == [("t", 0)]
    directory.close()
    disk.heal()
    directory = _directory(tmp_path, disk)
    assert (directory.clean_shutdown, values(read_all(directory.logs["t", 0]))) == (False, [(0, b"kept")])
    directory.close()


def test_a_directory_without_its_clean_shutdown_file_releases_its_lock(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    directory = _directory(tmp_path, disk, reporter)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG), b"kept")
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "replace_file" and "cleanshutdown" in path)
    directory.close()
    marker = f"{tmp_path}/.kafka_cleanshutdown"
    error = f"[Errno 28] No space left on device: '{marker}'"
    assert reporter.logged == [("error", "failed to write the clean shutdown file", {"file": marker, "error": error})]
    disk.heal()
    again = _directory(tmp_path, disk)
    assert values(read_all(again.logs["t", 0])) == [(0, b"kept")]
    again.close()


@pytest.mark.parametrize("set_aside", [LogDirectory.delete_log, LogDirectory.set_aside_as_stray])
def test_a_partition_that_cannot_be_renamed_can_be_deleted_again(
    tmp_path: Path, set_aside: Callable[[LogDirectory, str, int, str], None]
) -> None:
    disk = FailingDisk(tmp_path)
    directory = _directory(tmp_path, disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"kept")
    disk.fail(errno.EACCES, lambda name, path, _: name == "rename" and "t-0" in path)
    with pytest.raises(PermissionError):
        set_aside(directory, "t", 0, "0" * 32)
    assert directory.logs == {("t", 0): log}
    assert values(read_all(log)) == [(0, b"kept")]
    disk.heal()
    set_aside(directory, "t", 0, "0" * 32)
    assert directory.logs == {}
    assert directory.create_log("t", 0, TOPIC_ID, CONFIG).log_end_offset == 0


def test_a_planted_failure_ignores_the_path_above_the_log_directory(tmp_path: Path) -> None:
    # pytest's first run on a machine gives its tests /tmp/pytest-of-root/pytest-0/….
    path = tmp_path / "pytest-0"
    disk = FailingDisk(path)
    directory = _directory(path, disk)
    directory.create_log("t", 0, TOPIC_ID, CONFIG)
    directory.create_log("other", 0, TOPIC_ID, CONFIG)
    disk.fail(errno.EACCES, lambda name, path, _: name == "rename" and "t-0" in path)
    directory.delete_log("other", 0, "0" * 32)
    with pytest.raises(PermissionError):
        directory.delete_log("t", 0, "0" * 32)
    assert list(directory.logs) == [("t", 0)]


def test_a_failed_partition_that_cannot_be_renamed_can_be_deleted_again(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = _directory(tmp_path, disk)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG), b"a")
    directory.close()
    disk.fail(errno.EIO, lambda name, path, _: name in ("names", "rename") and "t-0" in path)
    directory = _directory(tmp_path, disk)
    with pytest.raises(OSError, match="Input/output error"):
        directory.set_aside_as_stray("t", 0, "0" * 32)
    assert list(directory.failed) == [("t", 0)]
    disk.heal()
    directory.set_aside_as_stray("t", 0, "0" * 32)
    assert directory.failed == {}
    assert not (tmp_path / "t-0").exists()


def test_a_removed_partition_directory_frees_its_name(tmp_path: Path) -> None:
    directory = _directory(tmp_path, FailingDisk(tmp_path))
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"a")
    (tmp_path / "t-0").rename(tmp_path.parent / "elsewhere")
    directory.delete_log("t", 0, "0" * 32)
    assert (directory.logs, isinstance(log.offline_cause, LogOfflineError)) == ({}, True)
    assert append(directory.create_log("t", 0, TOPIC_ID, CONFIG), b"b").first_offset == 0


def test_a_topic_id_that_cannot_be_written_takes_the_partition_offline(tmp_path: Path) -> None:
    disk, reporter = FailingDisk(tmp_path), RecordingReporter()
    log = _directory(tmp_path, disk, reporter).create_log("t", 0, None, CONFIG)
    disk.fail(errno.ENOSPC, lambda name, _path, _: name == "replace_file")
    with pytest.raises(OSError, match="No space left"):
        log.assign_topic_id(TOPIC_ID)
    assert (log.topic_id, isinstance(log.offline_cause, OSError)) == (None, True)
    assert reporter.events("error") == ["partition goes offline"]
