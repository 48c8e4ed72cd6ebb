"""The segments that retention deletes, and their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from log.tests.log_kit import START_MS, TOPIC_ID, Time, append, batch, open_directory, read_all, values

from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.retention import SegmentRetention, deletable

# Three segments of 100 bytes, ending at 10, 20 and 30, of 1, 2 and 3 seconds.
_SEGMENTS = [SegmentRetention(10 * at, 100, lambda at=at: 1000 * at) for at in (1, 2, 3)]


@pytest.mark.parametrize(
    ("settings", "start", "limit", "now_ms", "count"),
    [
        ({}, 0, 30, 10_000, 0),
        ({"retention_ms": -1}, 0, 30, 1 << 60, 0),
        ({"retention_ms": 1000}, 0, 30, 2001, 1),
        ({"retention_ms": 1000}, 0, 30, 4000, 2),
        ({"retention_ms": 1000}, 0, 30, 4001, 3),
        ({"retention_ms": 1000}, 0, 29, 4001, 2),
        ({"retention_ms": 1000}, 0, 5, 4001, 0),
        ({"retention_bytes": 300}, 0, 30, 0, 0),
        ({"retention_bytes": 201}, 0, 30, 0, 0),
        ({"retention_bytes": 200}, 0, 30, 0, 1),
        ({"retention_bytes": 0}, 0, 30, 0, 3),
        ({}, 19, 30, 0, 1),
        ({}, 20, 30, 0, 2),
        ({}, 30, 30, 0, 2),
        ({"cleanup_policy": ("compact",), "retention_ms": 1, "retention_bytes": 0}, 10, 30, 9999, 1),
    ],
)
def test_deletable_segments(settings: dict[str, object], start: int, limit: int, now_ms: int, count: int) -> None:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    assert deletable(_SEGMENTS, config, start, limit, now_ms) == count


def test_an_empty_active_segment_stays() -> None:
    segments = [*_SEGMENTS, SegmentRetention(30, 0, lambda: 0)]
    assert deletable(segments, LogConfig(retention_ms=0), 0, 30, 1 << 60) == 3


def _filled(path: Path, time: Time, **settings: object) -> Log:
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=500, **settings)  # type: ignore[arg-type]
    directory = open_directory(path, time)
    log = directory.create_log("t", 0, TOPIC_ID, config)
    for at in range(4):
        log.append(batch(b"%d" % at * 50, timestamp=START_MS + 1000 * at, producer=(9, 0, at)), at)
    return log


def _names(log: Log) -> set[str]:
    return {path.name for path in Path(log.directory).iterdir()} - {"partition.metadata", "leader-epoch-checkpoint"}


def test_deleted_files_are_renamed_now_and_removed_after_the_delay(tmp_path: Path) -> None:
    time = Time()
    log = _filled(tmp_path, time, retention_ms=2500)
    time.advance(3500)
    assert log.delete_old_segments(4) == 1
    assert (log.log_start_offset, log.leader_epochs.entries) == (1, [(1, 1), (2, 2), (3, 3)])
    first = {f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}
    assert first <= _names(log)
    time.advance(499)
    assert first <= _names(log)
    time.advance(1)
    assert not first & _names(log)


def test_snapshots_are_deleted_with_their_segments(tmp_path: Path) -> None:
    time = Time()
    log = _filled(tmp_path, time)
    log.advance_log_start_offset(2)
    assert log.delete_old_segments(4) == 2
    time.advance(500)
    assert sorted(name for name in _names(log) if "snapshot" in name) == [f"{at:020d}.snapshot" for at in (2, 3)]


def test_retention_of_all_records_leaves_an_empty_segment_at_the_log_end(tmp_path: Path) -> None:
    time = Time()
    log = _filled(tmp_path, time, retention_ms=10)
    time.advance(100_000)
    assert log.delete_old_segments(4) == 4
    assert (log.log_start_offset, log.log_end_offset, read_all(log), log.size_bytes) == (4, 4, [], 0)
    assert append(log, b"next", epoch=4, timestamp=time.now_ms).first_offset == 4


def test_records_below_an_advanced_log_start_offset_are_not_served(tmp_path: Path) -> None:
    log = _filled(tmp_path, Time())
    append(log, b"a", b"b", b"c", epoch=4)
    assert log.advance_log_start_offset(5)
    assert not log.advance_log_start_offset(3)
    assert values(read_all(log)) == [(5, b"b"), (6, b"c")]
    assert log.offset_for_timestamp(0) == (5, START_MS, 4)


def test_the_log_start_offset_and_high_watermark_are_checkpointed(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a", b"b", b"c")
    log.advance_log_start_offset(2)
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.prepare_high_watermarks({("t", 0): 3})
    directory.write_high_watermarks()
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nt 0 2\n"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\nt 0 0\n"
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == b"0\n1\nt 0 3\n"
    directory.close_without_writing()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: LogConfig())
    assert directory.logs["t", 0].log_start_offset == 2
    assert directory.high_watermarks() == {("t", 0): 3}


def test_an_empty_segment_is_not_rolled(tmp_path: Path) -> None:
    log = open_directory(tmp_path, Time()).create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a")
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
