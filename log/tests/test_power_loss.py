"""A power loss: bytes that were never synced may be lost, and all records below the recovery point survive."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log.tests.log_kit import START_MS, TOPIC_ID, Time, batch, open_directory, read_all
from log.tests.power_loss_disk import PowerLossDisk

from odradek_log.append import AppendInfo
from odradek_log.log_config import LogConfig
from odradek_log.producer_state_manager import AppendOrigin
from odradek_wire.records.control import end_txn_marker_batch

CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=100)
MARKER: Any = {"coordinator_epoch": 0, "producer_id": 7, "producer_epoch": 0, "timestamp": START_MS}


@pytest.mark.parametrize("seed", range(60))
def test_flushed_records_survive_a_power_loss_and_the_rest_is_a_prefix(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = PowerLossDisk()
    directory = open_directory(tmp_path, Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    disk.sync_file(str(tmp_path / "t-0" / "partition.metadata"))
    appended: list[bytes] = []
    for number in range(chance.randint(1, 40)):
        value = b"%d" % number * chance.randint(1, 60)
        records = batch(value, timestamp=START_MS + number, producer=(5, 0, number))
        assert isinstance(log.append(records, number // 10), AppendInfo)
        appended.append(value)
        if chance.random() < 0.1:
            log.flush()
        if chance.random() < 0.1:
            log.flush_sealed()
        if chance.random() < 0.1:
            directory.prepare_checkpoints()
            directory.write_checkpoints()
    flushed = log.recovery_point
    if chance.random() < 0.3:
        directory.close()
        flushed = log.log_end_offset
    else:
        directory.close_without_writing()
    disk.lose_power(tmp_path, chance)
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: CONFIG)
    assert directory.failed == {}
    log = directory.logs["t", 0]
    assert flushed <= log.log_end_offset <= len(appended)
    assert [record.value for record in read_all(log)] == appended[: log.log_end_offset]
    assert [entry.last_offset for entry in log.producers] == ([log.log_end_offset - 1] if log.log_end_offset else [])
    epochs = sorted({number // 10 for number in range(log.log_end_offset)})
    assert log.leader_epochs.entries == [(epoch, 10 * epoch) for epoch in epochs]


@pytest.mark.parametrize("seed", range(60))
def test_after_a_power_loss_transactions_are_rebuilt_from_the_batches(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = PowerLossDisk()
    directory = open_directory(tmp_path / "lost", Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    disk.sync_file(str(tmp_path / "lost" / "t-0" / "partition.metadata"))
    sequences = {5: 0, 6: 0}
    for _ in range(chance.randint(1, 80)):
        producer = chance.choice((5, 6))
        if chance.random() < 0.6:
            log.append(batch(b"v" * 30, producer=(producer, 0, sequences[producer]), transactional=True), 0)
            sequences[producer] += 1
        else:
            commit = chance.random() < 0.3
            marker = end_txn_marker_batch(
                commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=START_MS
            )
            log.append(marker, 0, origin=AppendOrigin.COORDINATOR)
        if chance.random() < 0.1:
            log.flush_sealed()
        if chance.random() < 0.1:
            log.flush()
        if chance.random() < 0.1:
            directory.prepare_checkpoints()
            directory.write_checkpoints()
    directory.close() if chance.random() < 0.3 else directory.close_without_writing()
    disk.lose_power(tmp_path, chance)
    directory = open_directory(tmp_path / "lost", Time())
    directory.load(lambda _: CONFIG)
    assert directory.failed == {}
    log = directory.logs["t", 0]
    copy = open_directory(tmp_path / "copy", Time()).create_log("t", 0, TOPIC_ID, LogConfig())
    while (piece := log.read(copy.log_end_offset, 1 << 20)) is not None:
        copy.append_as_follower(piece.tobytes())
    end = log.log_end_offset
    assert log.aborted_transactions(0, end) == copy.aborted_transactions(0, end)
    assert log.first_unstable_offset(end) == copy.first_unstable_offset(end)


class Worst(random.Random):
    """Keep only the synced bytes."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Torn(random.Random):
    """Keep half of the bytes that were not synced."""

    def choice(self, seq: Any) -> Any:
        return (seq[0] + seq[1]) // 2


def test_the_first_flush_syncs_the_files_of_a_killed_process(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    directory = open_directory(tmp_path, Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    for epoch in range(3):
        for commit in (True, False):
            sequence = 4 * epoch + 2 * (not commit)
            log.append(batch(b"v", b"w", producer=(7, 0, sequence), transactional=True), epoch)
            log.append(end_txn_marker_batch(commit=commit, **MARKER), epoch, origin=AppendOrigin.COORDINATOR)
        if epoch == 1:
            log.roll()
    aborted, epochs = log.aborted_transactions(0, 18), list(log.leader_epochs.entries)
    assert len(aborted) == len(epochs) == 3
    directory.close_without_writing()
    directory = open_directory(tmp_path, Time(), disk=disk)
    directory.load(lambda _: LogConfig())
    directory.logs["t", 0].roll()
    directory.logs["t", 0].flush()
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    directory.close_without_writing()
    disk.lose_power(tmp_path, Worst())
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: LogConfig())
    log = directory.logs["t", 0]
    assert (log.aborted_transactions(0, 18), log.leader_epochs.entries) == (aborted, epochs)


@pytest.mark.parametrize("end", ["close", "roll", "recover"])
def test_time_indexes_are_on_the_disk_before_a_start_trusts_them(tmp_path: Path, end: str) -> None:
    """After a clean shutdown, after a roll exactly at the recovery point, and after the recovery of segments."""
    config = replace(CONFIG, segment_bytes=1500, flush_messages=1 if end == "roll" else CONFIG.flush_messages)
    disk = PowerLossDisk()
    directory = open_directory(tmp_path, Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, config)
    for number in range(40):
        log.append(batch(b"%d" % number * 30, timestamp=START_MS + number), 0)
    assert len(log.segments) > 3
    if end == "close":
        directory.close()
    else:
        if end == "recover":
            directory.close_without_writing()
            for suffix in ("index", "timeindex"):
                for path in (tmp_path / "t-0").glob(f"*.{suffix}"):
                    os.truncate(path, path.stat().st_size // 24 * 12)
            directory = open_directory(tmp_path, Time(), disk=disk)
            directory.load(lambda _: config)
            log = directory.logs["t", 0]
        if end != "roll":
            assert log.has_unflushed_sealed
        log.flush_sealed()
        assert not log.has_unflushed_sealed
        directory.prepare_checkpoints()
        directory.write_checkpoints()
        directory.close_without_writing()
    disk.lose_power(tmp_path, Torn())
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: config)
    log = directory.logs["t", 0]
    found = [log.offset_for_timestamp(START_MS + number) for number in range(log.log_end_offset)]
    assert found == [(number, START_MS + number, 0) for number in range(log.log_end_offset)]
    newest = [segment.largest_timestamp[0] - START_MS + 1 for segment in log.segments if segment.size]
    assert newest == log.segments.end_offsets(log.log_end_offset)[: len(newest)]
    assert log.log_end_offset >= log.segments.active.base_offset > 0


@pytest.mark.parametrize("checkpoint", ["before the roll", "after the roll"])
def test_index_files_unsynced_at_a_power_loss_after_a_roll_are_rebuilt(tmp_path: Path, checkpoint: str) -> None:
    """The segment rolls exactly at the recovery point, and the power fails before its index files are synced."""
    config = replace(CONFIG, segment_bytes=1 << 20)
    disk = PowerLossDisk()
    directory = open_directory(tmp_path, Time(), disk=disk)
    log = directory.create_log("t", 0, TOPIC_ID, config)
    for number in range(40):
        log.append(batch(b"%d" % number * 30, timestamp=START_MS + number), 0)
    log.flush()
    if checkpoint == "after the roll":
        log.roll()
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    log.roll()
    assert log.recovery_point == log.segments.active.base_offset == 40
    directory.close_without_writing()
    disk.lose_power(tmp_path, Torn())
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: config)
    log = directory.logs["t", 0]
    found = [log.offset_for_timestamp(START_MS + number) for number in range(40)]
    assert found == [(number, START_MS + number, 0) for number in range(40)]
    assert (log.segments.first.largest_timestamp, log.log_end_offset) == ((START_MS + 39, 39), 40)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_empty_segments_after_a_lost_tail_are_removed_unless_flushed(tmp_path: Path, policy: str) -> None:
    config = replace(CONFIG, cleanup_policy=(policy,))
    for name, end in (("lost", 1), ("flushed", 2)):
        directory = open_directory(tmp_path / name, Time())
        log = directory.create_log("t", 0, TOPIC_ID, config)
        for value in (b"a", b"b"):
            log.append(batch(value, key=b"k"), 0)
            log.roll()
        if name == "flushed":
            log.flush_sealed()
        directory.prepare_checkpoints()
        directory.write_checkpoints()
        directory.close_without_writing()
        os.truncate(tmp_path / name / "t-0" / f"{1:020d}.log", 0)
        directory = open_directory(tmp_path / name, Time())
        directory.load(lambda _, config=config: config)
        assert directory.logs["t", 0].log_end_offset == end


@pytest.mark.parametrize("left", [0, 5, 21, 30, 42])
def test_a_log_serves_its_records_without_its_lost_topic_id(tmp_path: Path, left: int) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG)
    log.append(batch(b"a"), 0)
    directory.close()
    os.truncate(tmp_path / "t-0" / "partition.metadata", left)
    directory = open_directory(tmp_path, Time())
    directory.load(lambda _: CONFIG)
    log = directory.logs["t", 0]
    assert (log.topic_id, len(read_all(log))) == (None, 1)
    log.assign_topic_id(TOPIC_ID)
    assert (tmp_path / "t-0" / "partition.metadata").read_bytes().startswith(b"version: 0\ntopic_id: AAEC")
