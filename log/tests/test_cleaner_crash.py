"""A pass of the cleaner ends at any disk operation: after the next start the log has the same committed records."""

from __future__ import annotations

import errno
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from log.tests.cleaner_kit import begin, clean, end_transaction, keyed, last_of_each_key, write
from log.tests.failing_disk import FailingDisk
from log.tests.log_kit import TOPIC_ID, Time, open_directory
from log.tests.power_loss_disk import PowerLossDisk

from odradek_log.cleaner.cleaner import SegmentReplacement
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records

CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=1200, index_interval_bytes=100, delete_retention_ms=0)


def _fill(path: Path) -> None:
    """Write a partition `t-0` of a dozen segments with transactions, cleaned once and dirty again; close it cleanly."""
    directory = open_directory(path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    sequences = {5: 0, 6: 0}
    for at in range(50):
        records = ((b"key %d" % (at % 9), b"%d" % at * 15), (b"other %d" % at, None if at % 5 == 0 else b"x" * 20))
        producer_id = 5 if at % 4 == 0 else 6
        write(log, keyed(*records, producer=(producer_id, 0, sequences[producer_id]), transactional=producer_id == 5))
        sequences[producer_id] += 2
        if producer_id == 5:
            end_transaction(log, 5, commit=at % 8 == 0)
        if at == 25:
            clean(log)
    assert len(log.segments) > 5
    directory.close()


def _opened(path: Path, disk: FailingDisk | None = None) -> LogDirectory:
    directory = open_directory(path, Time(), disk=disk)
    directory.load(lambda _: CONFIG)
    assert directory.failed == {}
    return directory


def _committed(log: Log) -> dict[bytes, tuple[int, bytes]]:
    """Return the last value of each key for a read_committed reader."""
    offset, found = log.log_start_offset, []
    aborted = log.aborted_transactions(0, log.log_end_offset)
    while (piece := log.read(offset, 1 << 20)) is not None:
        data = piece.tobytes()
        for header in iterate(data):
            offset = header.next_offset
            is_aborted = header.is_transactional and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            if not header.is_control and not is_aborted:
                found += [(record.offset, record.key, record.value) for record in read_records(data, header)]
    return last_of_each_key(found)


def _producers(log: Log) -> dict[int, tuple[int, int, int]]:
    return {
        entry.producer_id: (entry.producer_epoch, entry.batches[-1].last_sequence, entry.batches[-1].last_offset)
        for entry in log.producers
    }


def _clean_as_far_as_possible(log: Log) -> None:
    """Run a pass until it is complete or the disk fails."""
    with suppress(OSError):
        cleaning = begin(log)
        for step in cleaning.slices():
            if isinstance(step, SegmentReplacement):
                cleaning.replace_segments(step)
        cleaning.complete()


@pytest.mark.long
@pytest.mark.parametrize("clean_shutdown", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_a_pass_that_fails_at_any_disk_operation_loses_no_record(
    tmp_path: Path, crash: bool, clean_shutdown: bool
) -> None:
    """With `crash` every operation from the n-th on fails, else only the n-th, as on a disk that is full briefly."""
    _fill(tmp_path / "filled")
    if not clean_shutdown:
        (tmp_path / "filled" / ".kafka_cleanshutdown").unlink()
    directory = _opened(tmp_path / "filled")
    log = directory.logs["t", 0]
    held, producers, end = _committed(log), _producers(log), log.log_end_offset
    size = log.size_bytes
    directory.close_without_writing()
    if clean_shutdown:
        (tmp_path / "filled" / ".kafka_cleanshutdown").touch()
    assert len(held) > 30
    number = calls = 0
    while calls >= number:
        number += 1
        path = tmp_path / "again"
        shutil.copytree(tmp_path / "filled", path)
        disk = FailingDisk(tmp_path)
        directory = _opened(path, disk)
        begun = len(disk.calls)
        disk.fail(
            errno.EIO,
            lambda _name, _path, at, wanted=begun + number: at >= wanted if crash else at == wanted,
        )
        _clean_as_far_as_possible(directory.logs["t", 0])
        calls = len(disk.calls) - begun
        directory.close_without_writing()
        directory = _opened(path)
        log = directory.logs["t", 0]
        assert (_committed(log), _producers(log)) == (held, producers), number
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        names = [file.name for file in (path / "t-0").iterdir()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], number
        clean(log)
        assert (_committed(log), _producers(log)) == (held, producers), number
        assert log.size_bytes < size
        directory.close_without_writing()
        shutil.rmtree(path)
    assert calls > 60


def test_a_crash_while_undoing_a_replacement_does_not_complete_it(tmp_path: Path) -> None:
    _fill(tmp_path)
    directory = _opened(tmp_path)
    held = _committed(directory.logs["t", 0])
    directory.close_without_writing()
    first = tmp_path / "t-0" / f"{0:020d}.log"
    first.with_suffix(".log.swap").write_bytes(b"")
    first.with_suffix(".index.cleaned").write_bytes(b"")
    disk = FailingDisk(tmp_path)
    disk.fail(errno.EIO, lambda _name, _path, _: disk.calls.count("remove") > 1)
    directory = open_directory(tmp_path, Time(), disk=disk)
    directory.load(lambda _: CONFIG)
    assert list(directory.failed) == [("t", 0)]
    directory.close_without_writing()
    assert _committed(_opened(tmp_path).logs["t", 0]) == held


@pytest.mark.parametrize("seed", range(10))
def test_a_power_loss_after_a_pass_loses_no_record(tmp_path: Path, seed: int) -> None:
    """The new segments are on the disk before the old ones are removed."""
    _fill(tmp_path)
    disk = PowerLossDisk()
    directory = open_directory(tmp_path, Time(), disk=disk)
    directory.load(lambda _: CONFIG)
    log = directory.logs["t", 0]
    # These files were written without this disk: count them as synced.
    for file in tmp_path.rglob("*"):
        if file.is_file():
            disk.sync_file(str(file))
    held, producers = _committed(log), _producers(log)
    clean(log)
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.close_without_writing()
    disk.lose_power(tmp_path, random.Random(seed))
    log = _opened(tmp_path).logs["t", 0]
    assert (_committed(log), _producers(log)) == (held, producers)
