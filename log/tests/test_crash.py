"""Recovery of a log after `kill -9`, a power loss and damage to a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
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
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_wire.records.batch import iterate

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
LOG = "00000000000000000000.log"


def _crashed(path: Path, batches: int = 3, config: LogConfig = CONFIG) -> list[tuple[int, bytes | None]]:
    """Write a partition `t-0` and close it as a kill does; return its records."""
    directory = open_directory(path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, config)
    for at in range(batches):
        append(log, b"%d" % at, b"second of %d" % at, timestamp=START_MS + at)
    held = values(read_all(log))
    directory.close_without_writing()
    return held


def _opened(path: Path, reporter: RecordingReporter | None = None) -> LogDirectory:
    directory = open_directory(path, Time(), reporter=reporter)
    directory.load(lambda _: CONFIG)
    return directory


def _log(path: Path, reporter: RecordingReporter | None = None) -> Log:
    directory = _opened(path, reporter)
    assert directory.failed == {}
    return directory.logs["t", 0]


def test_a_tail_torn_at_any_byte_of_the_last_batch_is_truncated(tmp_path: Path) -> None:
    held = _crashed(tmp_path / "whole")
    data = (tmp_path / "whole" / "t-0" / LOG).read_bytes()
    last = list(iterate(data))[-1].position
    for end in range(last, len(data)):
        path = tmp_path / str(end)
        shutil.copytree(tmp_path / "whole", path)
        (path / "t-0" / LOG).write_bytes(data[:end])
        log = _log(path)
        assert values(read_all(log)) == held[:-2]
        assert (path / "t-0" / LOG).stat().st_size == last
        assert append(log, b"next").first_offset == 4


def test_a_last_batch_of_zeros_or_garbage_is_truncated(tmp_path: Path) -> None:
    held = _crashed(tmp_path / "whole")
    data = (tmp_path / "whole" / "t-0" / LOG).read_bytes()
    last = list(iterate(data))[-1].position
    for name, tail in (("zeros", bytes(len(data) - last)), ("ones", b"\xff" * 300), ("bit", data[last:-1] + b"\x02")):
        path = tmp_path / name
        shutil.copytree(tmp_path / "whole", path)
        (path / "t-0" / LOG).write_bytes(data[:last] + tail)
        reporter = RecordingReporter()
        assert values(read_all(_log(path, reporter))) == held[:-2]
        assert reporter.events("warning") == ["truncating a torn tail"]


def test_damage_before_valid_batches_takes_the_partition_offline(tmp_path: Path) -> None:
    _crashed(tmp_path / "whole")
    data = (tmp_path / "whole" / "t-0" / LOG).read_bytes()
    *earlier, last = [header.position for header in iterate(data)]
    # The CRC does not cover the leader epoch.
    unchecked = {start + at for start in earlier for at in range(12, 16)}
    for position in range(last):
        if position % 7 or position in unchecked:
            continue  # every seventh byte will do; all were tried once
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        path = tmp_path / str(position)
        shutil.copytree(tmp_path / "whole", path)
        (path / "t-0" / LOG).write_bytes(damaged)
        reporter = RecordingReporter()
        directory = _opened(path, reporter)
        assert list(directory.failed) == [("t", 0)], position
        assert isinstance(directory.failed["t", 0], CorruptLogError)
        assert reporter.events("error") == ["partition stays offline"]
        assert (path / "t-0" / LOG).read_bytes() == damaged
        directory.close_without_writing()


def test_damage_in_an_older_segment_takes_only_its_partition_offline(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    for partition in (0, 1):
        log = directory.create_log("t", partition, TOPIC_ID, CONFIG)
        for at in range(40):
            append(log, b"%d" % at * 20)
    assert len(log.segments) > 3
    held = values(read_all(log))
    directory.close_without_writing()
    first = tmp_path / "t-0" / LOG
    first.write_bytes(first.read_bytes()[:-5])
    directory = _opened(tmp_path)
    assert list(directory.failed) == [("t", 0)]
    assert "valid batches follow" in str(directory.failed["t", 0])
    assert values(read_all(directory.logs["t", 1])) == held


def test_segments_below_the_recovery_point_are_not_read_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for at in range(40):
        append(log, b"%d" % at * 20)
    log.flush_sealed()
    assert log.recovery_point == log.segments[-1].base_offset
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.close_without_writing()
    first = tmp_path / "t-0" / LOG
    first.write_bytes(first.read_bytes()[:-5] + b"wrong")
    assert _opened(tmp_path).failed == {}


@pytest.mark.parametrize("clean", [True, False])
def test_lost_index_files_are_rebuilt_with_the_same_bytes(tmp_path: Path, clean: bool) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for at in range(40):
        append(log, b"%d" % at * 20, timestamp=START_MS + at)
    directory.close()
    folder = tmp_path / "t-0"
    written = {path.name: path.read_bytes() for path in folder.glob("*index")}
    for path in folder.glob("*index"):
        path.unlink()
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    directory = _opened(tmp_path)
    log = directory.logs["t", 0]
    assert log.offset_for_timestamp(START_MS + 17) == (17, START_MS + 17, 0)
    assert values(read_all(log)) == [(at, b"%d" % at * 20) for at in range(40)]
    directory.close()
    assert {path.name: path.read_bytes() for path in folder.glob("*index")} == written


def test_an_index_that_points_beyond_its_log_is_rebuilt(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for at in range(5):
        append(log, b"%d" % at * 20)
    directory.close()
    (tmp_path / "t-0" / LOG.replace(".log", ".index")).write_bytes(b"\x00\x00\x00\x02\x00\x10\x00\x00")
    reporter = RecordingReporter()
    log = _log(tmp_path, reporter)
    assert values(read_all(log)) == [(at, b"%d" % at * 20) for at in range(5)]
    assert reporter.events("warning") == ["rebuilding missing or damaged indexes"]


def _produce(log: Log, sequence: int, epoch: int = 0) -> object:
    return log.append(batch(b"v", producer=(9, epoch, sequence)), 0)


def test_producers_are_restored_from_the_snapshot_and_later_batches(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for sequence in range(12):
        _produce(log, sequence)
        if sequence == 6:
            log.roll()
    before = next(iter(log.producers))
    directory.close_without_writing()
    log = _log(tmp_path)
    assert list(log.producers) == [before]
    repeated = _produce(log, 9)
    assert isinstance(repeated, AppendInfo)
    assert (repeated.first_offset, repeated.duplicate) == (9, True)
    after = _produce(log, 12)
    assert isinstance(after, AppendInfo)
    assert (after.first_offset, after.duplicate) == (12, False)


@pytest.mark.parametrize("damage", [None, b"", b"\x00\x01garbage", b"\x00\x09" + bytes(8)])
def test_without_a_valid_snapshot_producers_are_restored_from_batches(tmp_path: Path, damage: bytes | None) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for sequence in range(6):
        _produce(log, sequence)
        if sequence == 3:
            log.roll()
    before = list(log.producers)
    directory.close_without_writing()
    (snapshot,) = (tmp_path / "t-0").glob("*.snapshot")
    if damage is None:
        snapshot.unlink()
    else:
        snapshot.write_bytes(damage)
    assert [entry.batches[-1] for entry in _log(tmp_path).producers] == [entry.batches[-1] for entry in before]


def test_leader_epochs_that_their_file_lacks_are_read_from_batches(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"a", epoch=1)
    append(log, b"b", epoch=1)
    old = (tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes()
    append(log, b"c", epoch=4)
    directory.close_without_writing()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(old)
    log = _log(tmp_path)
    assert log.leader_epochs.entries == [(1, 0), (4, 2)]
    assert log.end_offset_for_epoch(1) == (1, 2)


def test_interrupted_deletions_are_completed_at_the_start(tmp_path: Path) -> None:
    _crashed(tmp_path)
    folder = tmp_path / "t-0"
    names = {path.name for path in folder.iterdir()}
    for left_over in (LOG + ".deleted", "00000000000000000003.log.cleaned", "00000000000000000777.index"):
        (folder / left_over).write_bytes(b"")
    assert len(read_all(_log(tmp_path))) == 6
    assert {path.name for path in folder.iterdir()} == names


def test_a_complete_replacement_of_segments_is_finished_at_the_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    for at in range(4):
        append(log, b"%d" % at)
        log.roll()
    held = values(read_all(log))
    directory.close()
    folder = tmp_path / "t-0"
    names = {f"{base:020d}" for base in range(4)}
    merged = b"".join((folder / f"{name}.log").read_bytes() for name in sorted(names)[:3])
    (folder / f"{LOG}.swap").write_bytes(merged)
    reporter = RecordingReporter()
    log = _log(tmp_path, reporter)
    assert values(read_all(log)) == held
    assert [segment.base_offset for segment in log.segments] == [0, 3, 4]


def test_an_incomplete_replacement_of_segments_is_undone_at_the_start(tmp_path: Path) -> None:
    held = _crashed(tmp_path)
    folder = tmp_path / "t-0"
    (folder / f"{LOG}.swap").write_bytes(b"first of two")
    (folder / f"{LOG}.cleaned").write_bytes(b"second of two")
    assert values(read_all(_log(tmp_path))) == held
    assert not list(folder.glob("*.swap")) + list(folder.glob("*.cleaned"))


def test_a_read_of_a_damaged_batch_header_takes_the_log_offline(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    other = directory.create_log("t", 1, TOPIC_ID, CONFIG)
    for at in range(3):
        append(log, b"%d" % at)
        append(other, b"%d" % at)
    data = bytearray((tmp_path / "t-0" / LOG).read_bytes())
    data[list(iterate(data))[1].position + 16] = 9
    (tmp_path / "t-0" / LOG).write_bytes(data)
    with pytest.raises(CorruptLogError, match="magic 9"):
        log.read(1, 1000)
    with pytest.raises(LogOfflineError):
        log.append(batch(b"x"), 0)
    assert values(read_all(other)) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_a_log_truncated_to_deleted_records_keeps_its_end_after_a_crash(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    append(log, b"deleted")
    append(log, b"deleted, too", b"cut")
    log.advance_log_start_offset(2)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    directory.close_without_writing()
    log = _log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
