"""Appends as leader and as follower, and reads: offsets, limits, sizes, and file descriptors."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from log.tests.log_kit import (
    SMALL,
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

from odradek_log.append import AppendInfo, RecordError, Rejection
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import OffsetOutOfRangeError
from odradek_log.producer_state_manager import AppendOrigin
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.batch import iterate, read_header, rewrite_crc, set_max_timestamp
from odradek_wire.records.control import end_txn_marker_batch
from odradek_wire.records.record_errors import CorruptRecordError


def _log(path: Path, time: Time | None = None, open_files: int = 512, **settings: object) -> Log:
    directory = open_directory(path, time or Time(), open_files=open_files)
    return directory.create_log("t", 0, TOPIC_ID, LogConfig(**settings))  # type: ignore[arg-type]


def _rejected(answer: object) -> Rejection:
    assert isinstance(answer, Rejection)
    return answer


def test_offsets_and_leader_epoch_are_written_into_the_callers_buffer(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"a", b"b", epoch=3)
    records = batch(b"c", b"d", b"e")
    assert log.append(memoryview(records), 4) == AppendInfo(2, 4, -1, 0)
    header = read_header(records)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (2, 4, 4)
    assert (tmp_path / "t-0" / "00000000000000000000.log").read_bytes()[-len(records) :] == records
    assert log.leader_epochs.entries == [(3, 0), (4, 2)]
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n4 2\n"


def test_log_append_time_stamps_the_batch(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time, message_timestamp_type="LogAppendTime")
    time.now_ms += 5
    assert log.append(batch(b"a", timestamp=17, producer=(1, 0, 0)), 0) == AppendInfo(0, 0, START_MS + 5, 0)
    assert [record.timestamp for record in read_all(log)] == [START_MS + 5]
    assert log.offset_of_max_timestamp() == (0, START_MS + 5, 0)
    assert [entry.last_timestamp for entry in log.producers] == [START_MS + 5]


def test_a_rejected_batch_changes_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path, max_message_bytes=200)
    damaged = batch(b"a")
    damaged[-1] ^= 2
    late = batch(b"a", timestamp=START_MS + 3_600_001)
    assert _rejected(log.append(damaged, 0)).error is ErrorCode.CORRUPT_MESSAGE
    assert _rejected(log.append(batch(b"a") + batch(b"b"), 0)).error is ErrorCode.INVALID_RECORD
    assert _rejected(log.append(batch(b"x" * 200), 0)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert _rejected(log.append(late, 0)) == Rejection(
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        (
            RecordError(
                0,
                f"Timestamp {START_MS + 3_600_001} of message with offset 0 is out of range. The timestamp should be "
                f"within [{START_MS - (1 << 63) + 1}, {START_MS + 3_600_000}]",
            ),
        ),
    )
    assert (log.log_end_offset, log.size_bytes, log.leader_epochs.entries) == (0, 0, [])


def test_a_batch_larger_than_a_segment_is_rejected(tmp_path: Path) -> None:
    log = _log(tmp_path, segment_bytes=200)
    assert _rejected(log.append(batch(b"x" * 200), 0)).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_compacted_topic_needs_keys_and_compression_type_recompresses(tmp_path: Path) -> None:
    log = _log(tmp_path, cleanup_policy=("compact",), compression_type="zstd")
    assert _rejected(log.append(batch(b"no key"), 0)).record_errors == (
        RecordError(0, "Compacted topic cannot accept message without key in topic partition t-0"),
    )
    assert isinstance(log.append(batch(b"v" * 500, key=b"k", compression=Compression.GZIP), 0), AppendInfo)
    piece = log.read(0, 10_000)
    assert piece is not None
    assert read_header(piece.tobytes()).compression is Compression.ZSTD
    assert values(read_all(log)) == [(0, b"v" * 500)]


def test_strict_validation_reads_the_timestamps_of_records(tmp_path: Path) -> None:
    log = _log(tmp_path)
    lying = batch(b"a", b"b")
    # The header has a larger maximum timestamp than the records; set_max_timestamp corrects the CRC.
    set_max_timestamp(lying, read_header(lying), TimestampType.CREATE_TIME, START_MS + 1000)
    assert isinstance(log.append(bytearray(lying), 0, strict=True), AppendInfo)
    assert log.offset_of_max_timestamp() == (0, START_MS, 0)


def test_settings_change_between_two_appends(tmp_path: Path) -> None:
    log = _log(tmp_path, max_message_bytes=100)
    assert _rejected(log.append(batch(b"x" * 200), 0)).error is ErrorCode.MESSAGE_TOO_LARGE
    log.update_config(LogConfig(segment_bytes=400))
    for _ in range(3):
        append(log, b"x" * 200)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_segment_rolls_after_segment_ms_and_with_a_full_index(tmp_path: Path) -> None:
    log = _log(tmp_path, segment_ms=1000)
    for at in (0, 1000, 1001, 1500):
        append(log, b"x", timestamp=START_MS + at)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    tiny = _log(tmp_path / "tiny", index_interval_bytes=0, segment_index_bytes=36)
    for at in range(10):
        append(tiny, b"x", timestamp=START_MS + at)
    # The time index has room for three entries; the last is reserved for the end of the segment.
    assert [segment.base_offset for segment in tiny.segments] == [0, 3, 6, 9]


def test_offsets_more_than_31_bits_apart_are_in_different_segments(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append_as_follower(batch(b"a"))
    far = batch(b"b")
    far[0:8] = (1 << 32).to_bytes(8, "big")
    assert log.append_as_follower(far) == AppendInfo(1 << 32, 1 << 32, -1, 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 32]
    assert values(read_all(log)) == [(0, b"a"), (1 << 32, b"b")]
    piece = log.read(5, 1000)
    assert piece is not None
    assert next(iterate(piece.tobytes())).base_offset == 1 << 32


def test_a_follower_copies_a_compacted_log_with_a_gap_at_its_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, SMALL)
    for number in range(20):
        records = batch(b"%d" % number)
        records[0:8] = (3_000_000_000 + number).to_bytes(8, "big")
        assert log.append_as_follower(records) is not None
    copied = values(read_all(log))
    assert [offset for offset, _ in copied] == list(range(3_000_000_000, 3_000_000_020))
    log.flush()
    directory.close()
    for _ in range(2):
        directory = open_directory(tmp_path, Time())
        directory.load(lambda _: SMALL)
        log = directory.logs["t", 0]
        assert (log.log_start_offset, values(read_all(log))) == (0, copied)
        directory.close_without_writing()


def test_a_retry_of_an_idempotent_batch_returns_its_first_offsets(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"other")
    assert log.append(batch(b"a", b"b", producer=(9, 0, 0)), 0) == AppendInfo(1, 2, -1, 0)
    assert log.append(batch(b"a", b"b", producer=(9, 0, 0)), 0) == AppendInfo(1, 2, START_MS, 0, duplicate=True)
    assert _rejected(log.append(batch(b"c", producer=(9, 0, 3)), 0)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 3


def test_a_marker_of_a_coordinator_ends_a_transaction(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(batch(b"a", producer=(9, 0, 0), transactional=True), 0)
    assert log.producers.transactions.first_ongoing_offset == 0
    marker = end_txn_marker_batch(commit=True, coordinator_epoch=1, producer_id=9, producer_epoch=0, timestamp=START_MS)
    assert _rejected(log.append(bytearray(marker), 0)).error is ErrorCode.INVALID_RECORD
    assert isinstance(log.append(marker, 0, origin=AppendOrigin.COORDINATOR), AppendInfo)
    assert log.producers.transactions.first_ongoing_offset is None


def test_a_follower_appends_whole_batches_and_ignores_a_partial_one(tmp_path: Path) -> None:
    leader = _log(tmp_path / "leader", segment_bytes=400, index_interval_bytes=100)
    for at in range(12):
        leader.append(batch(b"%d" % at, b"x", producer=(9, 0, 2 * at)), at // 5)
    follower = _log(tmp_path / "follower", segment_bytes=400, index_interval_bytes=100)
    while (piece := leader.read(follower.log_end_offset, 250)) is not None:
        assert follower.append_as_follower(piece.tobytes()) is not None
    assert values(read_all(follower)) == values(read_all(leader))
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert list(follower.producers) == list(leader.producers)
    assert follower.append_as_follower(b"") is None


def test_a_follower_appends_the_valid_batches_before_an_invalid_one(tmp_path: Path) -> None:
    log = _log(tmp_path)
    second = batch(b"b")
    second[0:8] = (1).to_bytes(8, "big")
    damaged = bytearray(second)
    damaged[-1] ^= 2
    with pytest.raises(CorruptRecordError, match="wrong CRC"):
        log.append_as_follower(batch(b"a") + damaged)
    assert (log.log_end_offset, log.offline_cause) == (1, None)
    with pytest.raises(CorruptRecordError, match="at least 1 expected"):
        log.append_as_follower(batch(b"a"))
    assert log.append_as_follower(second) == AppendInfo(1, 1, -1, 0)


def test_a_follower_ignores_batches_of_a_later_leader_epoch(tmp_path: Path) -> None:
    leader = _log(tmp_path / "leader")
    for value, epoch in ((b"a", 3), (b"b", 5), (b"c", 5)):
        append(leader, value, epoch=epoch)
    follower = _log(tmp_path / "follower")
    piece = leader.read(0, 1000)
    assert piece is not None
    assert follower.append_as_follower(piece.tobytes(), leader_epoch=4) == AppendInfo(0, 0, -1, 0)
    piece = leader.read(1, 1000)
    assert piece is not None
    assert follower.append_as_follower(piece.tobytes(), leader_epoch=4) is None
    assert (follower.log_end_offset, follower.leader_epochs.entries) == (1, [(3, 0)])
    assert follower.append_as_follower(piece.tobytes(), leader_epoch=5) == AppendInfo(1, 2, -1, 0)


def test_a_read_outside_the_log_raises_and_one_at_its_end_is_empty(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"a", b"b")
    log.advance_log_start_offset(1)
    assert log.read(2, 100) is None
    for offset in (0, 3):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)


def test_a_read_returns_the_first_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    log = _log(tmp_path)
    append(log, b"x" * 100)
    size = log.size_bytes
    append(log, b"y")
    for known_place in (False, True):
        offset = 1 if known_place else 0
        whole = log.size_bytes - size if known_place else size
        piece = log.read(offset, 1)
        assert piece is not None
        assert (len(piece), piece.position) == (whole, size if known_place else 0)
        assert log.read(offset, 1, min_one=False) is None
    piece = log.read(0, size + 5)
    assert piece is not None
    assert len(piece) == size + 5


def test_many_partitions_share_few_file_descriptors(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time(), open_files=8)
    logs = [directory.create_log("t", at, TOPIC_ID, LogConfig()) for at in range(100)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for at, log in enumerate(logs):
            append(log, b"%d" % at)
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    assert [len(read_all(log)) for log in logs] == [3] * 100
    directory.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_slice_is_readable_after_eviction_and_deletion(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time(), open_files=1)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"kept for the answer")
    piece = log.read(0, 1000)
    assert piece is not None
    append(directory.create_log("u", 0, TOPIC_ID, LogConfig()), b"takes the descriptor")
    directory.delete_log("t", 0, "0" * 32)
    (tmp_path / f"t-0.{'0' * 32}-delete" / "00000000000000000000.log").unlink()
    assert b"kept for the answer" in piece.tobytes()


def test_flush_messages_forces_the_log_to_the_disk(tmp_path: Path) -> None:
    log = _log(tmp_path, flush_messages=3)
    append(log, b"a", b"b")
    assert log.recovery_point == 0
    append(log, b"c")
    assert log.recovery_point == 3


def test_a_log_without_errors_logs_nothing(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    directory = open_directory(tmp_path, Time(), reporter=reporter)
    directory.load(lambda _: LogConfig())
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig()), b"a")
    directory.close()
    assert reporter.logged == []


def test_malformed_records_do_not_stop_a_look_up_by_timestamp(tmp_path: Path) -> None:
    log = _log(tmp_path)
    nonsense = batch(b"a", b"b")
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    rewrite_crc(nonsense, read_header(nonsense))
    assert _rejected(log.append(bytearray(nonsense), 0, strict=True)).error is ErrorCode.INVALID_RECORD
    assert isinstance(log.append(nonsense, 0), AppendInfo)
    append(log, b"c", timestamp=START_MS + 1)
    assert log.offset_for_timestamp(START_MS) == (0, START_MS, 0)
    assert log.offset_for_timestamp(START_MS + 1) == (2, START_MS + 1, 0)


def test_a_message_set_of_an_old_producer_becomes_a_batch(tmp_path: Path) -> None:
    log = _log(tmp_path)
    value = b"\x01\x00" + b"\xff\xff\xff\xff" + (3).to_bytes(4, "big") + b"old"  # magic 1, no codec, no key
    message = value[:2] + START_MS.to_bytes(8, "big") + value[2:]
    entry = bytes(8) + (4 + len(message)).to_bytes(4, "big") + zlib.crc32(message).to_bytes(4, "big") + message
    assert log.append(bytearray(entry + entry), 0) == AppendInfo(0, 1, -1, 0)
    assert values(read_all(log)) == [(0, b"old"), (1, b"old")]
    assert log.append(bytearray(entry[:-1]), 0) == AppendInfo(-1, -1, -1, 0)


def test_an_empty_follower_appends_a_batch_that_begins_below_its_start(tmp_path: Path) -> None:
    leader = _log(tmp_path / "leader")
    append(leader, b"a", b"b", b"c")
    append(leader, b"d")
    follower = _log(tmp_path / "follower")
    follower.truncate_fully_and_start_at(2)
    piece = leader.read(2, 1000)
    assert piece is not None
    assert follower.append_as_follower(piece.tobytes()) == AppendInfo(0, 3, -1, 2)
    assert (follower.log_start_offset, follower.log_end_offset, follower.first_base_offset) == (2, 4, 0)
    assert values(read_all(follower)) == [(2, b"c"), (3, b"d")]
    with pytest.raises(CorruptRecordError):
        follower.append_as_follower(piece.tobytes())


def test_a_damaged_batch_below_the_log_start_truncates_nothing(tmp_path: Path) -> None:
    leader = _log(tmp_path / "leader")
    append(leader, b"a", b"b", b"c")
    follower = _log(tmp_path / "follower")
    follower.truncate_fully_and_start_at(2)
    piece = leader.read(2, 1000)
    assert piece is not None
    damaged = bytearray(piece.tobytes())
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        follower.append_as_follower(damaged)
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 2)
