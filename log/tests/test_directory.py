"""A log directory: its identity, its content, a clean shutdown, and the creation and deletion of partitions."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from log.tests.failing_disk import FailingDisk
from log.tests.log_kit import TOPIC_ID, RecordingReporter, Time, append, open_directory, read_all, values

from odradek_log.log_config import LogConfig
from odradek_log.log_errors import LogDirectoryError
from odradek_log.meta_properties import MetaProperties
from odradek_wire.uuid import METADATA_TOPIC_ID, Uuid

_HEX = "0123456789abcdef" * 2


def test_the_clean_shutdown_file_is_written_read_and_removed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig()), b"a")
    directory.close(broker_epoch=12)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":12}'
    assert (tmp_path / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\nt 0 1\n"
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert (directory.clean_shutdown, directory.previous_broker_epoch) == (True, 12)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert directory.logs["t", 0].topic_id == TOPIC_ID


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_partition_without_records_has_only_its_topic_id_file(tmp_path: Path) -> None:
    metadata = {"partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"}
    for number in range(3):
        directory = open_directory(tmp_path, Time())
        directory.load(lambda _: LogConfig())
        log = directory.logs.get(("t", 0)) or directory.create_log("t", 0, TOPIC_ID, LogConfig())
        log.leader_epochs.assign(number, 0)
        assert (log.read(0, 100), log.offset_for_timestamp(0), log.size_bytes) == (None, None, 0)
        log.flush()
        log.roll()
        assert log.delete_old_segments(0) == 0
        directory.close()
        assert _files(tmp_path / "t-0") == metadata
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert append(directory.logs["t", 0], b"a", epoch=3).first_offset == 0
    directory.close()
    assert set(_files(tmp_path / "t-0")) == {
        *metadata,
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
    }


def test_an_emptied_partition_has_the_same_files_as_in_kafka(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=0))
    append(log, b"a")
    log.truncate_fully_and_start_at(5)
    directory.close()
    assert {name: data for name, data in _files(tmp_path / "t-0").items() if not name.endswith(".deleted")} == {
        "00000000000000000005.log": b"",
        "00000000000000000005.index": b"",
        "00000000000000000005.timeindex": b"",
        "00000000000000000005.snapshot": bytes.fromhex("0001") + bytes.fromhex("48674bc7") + bytes(4),
        "leader-epoch-checkpoint": b"0\n0\n",
        "partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
    }


def test_a_newer_meta_properties_is_rejected_and_unchanged(tmp_path: Path) -> None:
    text = b"version=2\nnode.id=1\ncluster.id=c\nflavour=new\n"
    (tmp_path / "meta.properties").write_bytes(text)
    with pytest.raises(LogDirectoryError, match="version 2, expected 0 or 1"):
        open_directory(tmp_path, Time())
    assert (tmp_path / "meta.properties").read_bytes() == text
    (tmp_path / "meta.properties").unlink()
    directory = open_directory(tmp_path, Time())
    assert directory.meta is None
    directory.write_meta(MetaProperties(1, "c", 4))
    assert b"node.id=4\nversion=1\ncluster.id=c\n" in (tmp_path / "meta.properties").read_bytes()


def test_a_foreign_directory_is_an_error_and_a_foreign_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").touch()
    open_directory(tmp_path, Time()).close()
    (tmp_path / "lost+found").mkdir()
    directory = open_directory(tmp_path, Time())
    directory.write_meta(MetaProperties(1, "c", 4))
    directory.load(lambda _: LogConfig())
    directory.close()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "photos").mkdir()
    directory = open_directory(tmp_path, Time())
    with pytest.raises(LogDirectoryError, match="photos is not the directory of a partition"):
        directory.load(lambda _: LogConfig())


@pytest.mark.parametrize("foreign", ["notes.txt", "photos/", ".git/"])
def test_a_directory_with_foreign_files_is_rejected_and_unchanged(tmp_path: Path, foreign: str) -> None:
    if foreign.endswith("/"):
        (tmp_path / foreign).mkdir()
    else:
        (tmp_path / foreign).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LogDirectoryError) as refused:
        open_directory(tmp_path, Time())
    assert str(refused.value) == (
        f"{tmp_path} is not the data directory of a broker: it has no meta.properties, and holds "
        f"{foreign.rstrip('/')}; use an empty directory, or one that does not exist yet"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_in_place_of_the_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(LogDirectoryError, match="data is a file, not a directory"):
        open_directory(tmp_path / "data", Time())
    assert (tmp_path / "data").read_text() == "mine"


def test_hidden_files_and_files_of_a_failed_start_are_accepted(tmp_path: Path) -> None:
    for name in (
        ".lock",
        ".gitkeep",
        "meta.properties.tmp",
        "bootstrap.checkpoint",
        "recovery-point-offset-checkpoint",
    ):
        (tmp_path / name).touch()
    (tmp_path / "lost+found").mkdir()
    open_directory(tmp_path, Time()).close()


def test_a_deleted_partition_is_renamed_now_and_removed_after_the_delay(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig()), b"a")
    directory.delete_log("t", 0, _HEX)
    renamed = tmp_path / f"t-0.{_HEX}-delete"
    assert renamed.is_dir()
    assert directory.logs == {}
    assert values(read_all(directory.create_log("t", 0, TOPIC_ID, LogConfig()))) == []
    directory.close()
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: LogConfig())
    assert list(directory.logs) == [("t", 0)]
    assert renamed.is_dir()
    time.advance(60_000)
    assert not renamed.exists()


def test_a_stray_partition_is_renamed(tmp_path: Path) -> None:
    time, reporter = Time(), RecordingReporter()
    directory = open_directory(tmp_path, time)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig()), b"a")
    directory.set_aside_as_stray("t", 0, _HEX)
    directory.close()
    directory = open_directory(tmp_path, time, reporter=reporter)
    directory.load(lambda _: LogConfig())
    time.advance(1 << 40)
    assert directory.logs == {}
    assert (tmp_path / f"t-0.{_HEX}-stray" / "partition.metadata").exists()
    assert reporter.events("warning") == ["ignoring a stray partition"]


def test_the_metadata_log_is_not_loaded_as_a_partition(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.open_metadata_log(LogConfig())
    append(log, b"record")
    log.close()
    directory.close()
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert directory.logs == {}
    log = directory.open_metadata_log(LogConfig())
    assert (log.topic_id, values(read_all(log))) == (METADATA_TOPIC_ID, [(0, b"record")])


def test_a_damaged_checkpoint_is_ignored_and_logged(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig()), b"a")
    directory.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"no checkpoint")
    reporter = RecordingReporter()
    directory = open_directory(tmp_path, Time(), reporter=reporter)
    directory.load(lambda _: LogConfig())
    assert values(read_all(directory.logs["t", 0])) == [(0, b"a")]
    assert reporter.events("error") == ["ignoring a damaged checkpoint"]


def test_settings_have_kafkas_names_and_unknown_ones_are_ignored() -> None:
    config = LogConfig.from_configs(
        {
            "segment.bytes": "1000",
            "cleanup.policy": "compact, delete",
            "preallocate": "TRUE",
            "min.cleanable.dirty.ratio": "0.25",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": None,
            "follower.replication.throttled.replicas": "1:1",
        }
    )
    assert (config.segment_bytes, config.cleanup_policy, config.preallocate) == (1000, ("compact", "delete"), True)
    assert (config.min_cleanable_dirty_ratio, config.retention_ms) == (0.25, LogConfig().retention_ms)
    assert (config.compact, config.delete, config.rules.sets_append_time) == (True, True, True)


def test_the_newest_checkpoint_wins_in_any_order_of_writers(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    assert directory.prepare_high_watermarks({("t", 0): 1})
    assert directory.prepare_high_watermarks({("t", 0): 2})
    # Two threads write, in any order: the first writes the newest content, the second nothing.
    directory.write_high_watermarks()
    (tmp_path / "replication-offset-checkpoint").unlink()
    directory.write_high_watermarks()
    assert directory.high_watermarks() == {}
    assert not directory.prepare_high_watermarks({("t", 0): 2})
    assert directory.prepare_high_watermarks({("t", 0): 3})
    directory.write_high_watermarks()
    assert directory.high_watermarks() == {("t", 0): 3}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_partition_ignores_the_offsets_of_a_deleted_namesake(tmp_path: Path, restarted: bool) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a", b"b", b"c")
    log.advance_log_start_offset(2)
    log.flush()
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    if restarted:
        directory.close_without_writing()
        directory = open_directory(tmp_path, Time())
        directory.load(lambda _: LogConfig())
    directory.delete_log("t", 0, "0" * 32)
    append(directory.create_log("t", 0, Uuid(b"another topic id"), LogConfig()), b"d")
    directory.close_without_writing()
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert values(read_all(directory.logs["t", 0])) == [(0, b"d")]


def test_a_promoted_future_log_ignores_the_offsets_of_a_deleted_namesake(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = open_directory(tmp_path, Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a", b"b", b"c")
    log.advance_log_start_offset(3)
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.delete_log("t", 0, "0" * 32)
    append(directory.create_future_log("t", 0, TOPIC_ID, LogConfig(), "1" * 32), b"d")
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "replace_file" and "checkpoint" in path)
    with pytest.raises(OSError, match="have a deleted partition"):
        directory.promote_future_log("t", 0)
    disk.heal()
    disk.calls.clear()
    directory.promote_future_log("t", 0)
    assert "sync_directory" in disk.calls[disk.calls.index("rename") :], "the old log is deleted after this"
    directory.close_without_writing()
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert values(read_all(directory.logs["t", 0])) == [(0, b"d")]


def test_a_log_that_raises_at_close_does_not_affect_the_others(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    directory = open_directory(tmp_path, Time(), reporter=reporter)
    for index in range(3):
        append(directory.create_log("t", index, TOPIC_ID, LogConfig()), b"a")
    directory.logs["t", 0].producers = None  # type: ignore[assignment]
    directory.close()
    assert [log.is_closed for log in directory.logs.values()] == [False, True, True]
    assert [fields["partition"] for _, _, fields in reporter.logged] == ["t-0"]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    assert [len(read_all(log)) for log in directory.logs.values()] == [1, 1, 1]


def test_a_partition_is_not_created_with_checkpoints_of_a_namesake(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    directory = open_directory(tmp_path, Time(), disk=disk)
    directory.create_log("t", 0, TOPIC_ID, LogConfig())
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.delete_log("t", 0, "0" * 32)
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "replace_file" and "checkpoint" in path)
    with pytest.raises(OSError, match="have a deleted partition"):
        directory.create_log("t", 0, TOPIC_ID, LogConfig())
    disk.heal()
    assert directory.create_log("t", 0, TOPIC_ID, LogConfig()).log_end_offset == 0


def test_a_checkpoint_has_the_recovery_points_of_its_preparation(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    log.flush()
    append(log, b"c")
    directory.prepare_checkpoints()
    log.flush()
    directory.write_checkpoints()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"


def test_one_of_two_future_logs_of_a_partition_is_removed(tmp_path: Path) -> None:
    time, reporter = Time(), RecordingReporter()
    directory = open_directory(tmp_path, time)
    append(directory.create_future_log("t", 0, TOPIC_ID, LogConfig(), "1" * 32), b"a")
    directory.close()
    shutil.copytree(tmp_path / f"t-0.{'1' * 32}-future", tmp_path / f"t-0.{'2' * 32}-future")
    directory = open_directory(tmp_path, time, reporter=reporter)
    directory.load(lambda _: LogConfig())
    kept, removed = (f"{tmp_path}/t-0.{digit * 32}-future" for digit in "12")
    assert [log.directory for log in directory.futures.values()] == [kept]
    assert reporter.logged == [
        ("warning", "removing a second future log of a partition", {"directory": removed, "kept": kept})
    ]
    time.advance(60_000)
    assert [path.name for path in tmp_path.glob("t-0.*")] == [Path(kept).name]
