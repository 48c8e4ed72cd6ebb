"""The records and files that a pass of the cleaner leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from log.tests.cleaner_kit import LIMITS, begin, clean, end_transaction, keyed, last_of_each_key, left, write
from log.tests.log_kit import START_MS, TOPIC_ID, Time, open_directory, read_all

from odradek_log.append import AppendInfo
from odradek_log.cleaner.cleaner import CleanerConfig, SegmentReplacement
from odradek_log.cleaner.offset_map import BYTES_PER_ENTRY
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_segment import FileSlice
from odradek_log.producer_state_manager import BatchMetadata
from odradek_wire.records.attributes import Compression
from odradek_wire.records.record_errors import CorruptRecordError

COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=1000, index_interval_bytes=100, delete_retention_ms=5000)


def _log(path: Path, time: Time | None = None, config: LogConfig = COMPACT) -> Log:
    directory = open_directory(path, time or Time())
    return directory.create_log("t", 0, TOPIC_ID, config)


def _opened(path: Path) -> tuple[LogDirectory, Log]:
    directory = open_directory(path, Time())
    directory.load(lambda _: COMPACT)
    assert directory.failed == {}
    return directory, directory.logs["t", 0]


def test_the_last_record_of_each_key_keeps_its_offset(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for at in range(60):
        write(log, keyed((b"a", b"%d" % at * 5), (b"key %d" % (at % 7), b"x" * 20), timestamp=START_MS + at))
    before, size = left(log), log.size_bytes
    end, sealed = log.log_end_offset, log.segments.active.base_offset
    clean(log)
    assert log.log_end_offset == end
    assert log.log_start_offset == 0
    dirty = [record for record in before if record[0] < sealed]
    last = {key: offset for offset, key, _ in dirty}
    assert left(log) == [each for each in before if each[0] >= sealed or last[each[1]] == each[0]]
    assert log.size_bytes < size / 2
    assert log.cleaner.checkpoint == sealed
    # A look-up by timestamp finds the first record that is left.
    assert log.offset_for_timestamp(0) == (left(log)[0][0], read_all(log)[0].timestamp, 0)


def test_a_cleaned_log_is_read_from_any_offset_and_opened_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, COMPACT)
    for at in range(200):
        write(log, keyed(*((b"%d" % (at * number % 90), b"%d" % at) for number in (1, 3, 7))))
    clean(log)
    held = left(log)
    for offset in range(0, log.log_end_offset, 13):
        assert [record.offset for record in read_all(log, offset)] == [each[0] for each in held if each[0] >= offset]
    directory.close_without_writing()
    for file in tmp_path.glob("t-0/*index"):
        file.unlink()
    assert left(_opened(tmp_path)[1]) == held


@pytest.mark.parametrize("codec", list(Compression))
def test_superseded_records_are_removed_from_batches_of_any_codec(tmp_path: Path, codec: Compression) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"a", b"4"), compression=codec))
    log.roll()
    write(log, keyed((b"b", b"5"), compression=codec))
    log.roll()
    clean(log)
    assert left(log) == [(2, b"c", b"3"), (3, b"a", b"4"), (4, b"b", b"5")]
    assert [header.compression for header in log.segments.first.headers_from(0)] == [codec, codec]


def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
    log = _log(tmp_path, config=LogConfig(segment_bytes=1000))
    write(log, keyed((None, b"1"), (b"a", b"2"), (None, b"3")))
    log.roll()
    log.update_config(COMPACT)
    clean(log)
    assert left(log) == [(1, b"a", b"2")]


def test_long_keys_that_differ_at_their_end_are_different(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"k" * 300 + b"a", b"1"), (b"k" * 300 + b"b", b"2"), (b"k" * 300 + b"a", b"3")))
    log.roll()
    clean(log)
    assert [offset for offset, _, _ in left(log)] == [1, 2]


def test_records_above_the_cleanable_part_supersede_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for value in (b"1", b"2", b"3"):
        write(log, keyed((b"a", value)))
        log.roll()
    clean(log, last_stable=2)
    assert left(log) == [(1, b"a", b"2"), (2, b"a", b"3")]
    write(log, keyed((b"a", b"4")))
    clean(log)
    assert left(log) == [(2, b"a", b"3"), (3, b"a", b"4")]


def test_the_next_pass_continues_where_the_dedupe_buffer_was_full(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for round_ in range(2):
        write(log, keyed(*((b"%d" % at, b"%d" % round_) for at in range(10))))
        log.roll()
    before = left(log)
    few = CleanerConfig(dedupe_buffer_bytes=4 * BYTES_PER_ENTRY, load_factor=1, io_buffer_bytes=4096)
    ends, sizes = [], []
    for _ in range(5):
        ends.append(clean(log, config=few).end_offset)
        sizes.append(len(left(log)))
    assert ends == [4, 8, 12, 16, 20]
    assert sizes == [20, 20, 18, 14, 10]
    assert left(log) == before[10:]


def test_tombstones_stay_for_delete_retention_ms_after_their_first_pass(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time)
    write(log, keyed((b"a", b"1"), (b"b", b"2")), keyed((b"a", None), (b"c", b"3")))
    timestamps = [record.timestamp for record in read_all(log)]
    log.roll()
    clean(log)
    assert left(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    assert [record.timestamp for record in read_all(log)] == timestamps[1:]
    first, second = log.segments.first.headers_from(0)
    assert (first.delete_horizon_ms, second.delete_horizon_ms) == (None, START_MS + 5000)
    time.advance(4999)
    clean(log)
    assert len(left(log)) == 3
    time.advance(1)
    clean(log)
    assert left(log) == [(1, b"b", b"2"), (3, b"c", b"3")]


def test_the_last_batch_of_an_active_producer_stays_without_records(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"a", b"1"), (b"a", b"2"), producer=(7, 3, 0)), keyed((b"a", b"3")))
    log.roll()
    clean(log)
    assert left(log) == [(2, b"a", b"3")]
    assert [(each.base_offset, each.count) for each in log.segments.first.headers_from(0)] == [(0, 0), (2, 1)]
    log.producers.clear()
    log.snapshots.remove_all()
    log.rebuild_producer_state()
    entry = log.producers.get(7)
    assert entry is not None
    assert list(entry.batches) == [BatchMetadata(1, 1, 1, START_MS + 1)]
    assert isinstance(log.append(keyed((b"b", b"4"), producer=(7, 3, 2)), 0), AppendInfo)
    log.roll()
    clean(log)
    assert left(log) == [(2, b"a", b"3"), (3, b"b", b"4")]
    assert [(each.base_offset, each.count) for each in log.segments.first.headers_from(0)] == [(2, 1), (3, 1)]


def test_the_last_batch_of_a_pass_stays_so_that_its_offset_is_known(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time)
    write(log, keyed((b"a", None)))
    log.roll()
    clean(log)
    time.advance(5000)
    clean(log)
    assert left(log) == []
    assert [(each.base_offset, each.count) for each in log.segments.first.headers_from(0)] == [(0, 0)]


def test_aborted_records_are_removed_and_their_marker_after_the_horizon(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time)
    write(log, keyed((b"a", b"1")), keyed((b"a", b"2"), producer=(5, 0, 0), transactional=True))
    end_transaction(log, 5, commit=False)
    # The producer writes more, so that no empty batch stays for its last sequence.
    write(log, keyed((b"z", b"3"), producer=(5, 0, 1), transactional=True))
    end_transaction(log, 5, commit=True)
    log.roll()
    write(log, keyed((b"y", b"4"), producer=(5, 0, 2)))
    assert len(log.aborted_transactions(0, 5)) == 1
    clean(log)
    controls = [record.offset for record in read_all(log) if record.key is not None and len(record.key) == 4]
    assert [record.offset for record in read_all(log) if record.offset not in controls] == [0, 3, 5]
    # Before this pass the aborted transaction had records, so that its marker and its index entry stay.
    assert controls == [2, 4]
    assert [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 5)] == [(1, 2)]
    clean(log)
    marker = next(each for each in log.segments.first.headers_from(0) if each.base_offset == 2)
    assert marker.delete_horizon_ms == START_MS + 5000
    assert log.aborted_transactions(0, 5) == []
    time.advance(5000)
    clean(log)
    assert [each.base_offset for each in log.segments.first.headers_from(0)] == [0, 3, 4]


def test_a_commit_marker_stays_with_the_batches_of_its_transaction(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time)
    write(log, keyed((b"a", b"1"), producer=(5, 0, 0), transactional=True))
    end_transaction(log, 5, commit=True)
    write(log, keyed((b"z", b"3"), producer=(5, 0, 1)))
    log.roll()
    for _ in range(3):
        clean(log)
        time.advance(5000)
    assert [each.base_offset for each in log.segments.first.headers_from(0)] == [0, 1, 2]
    write(log, keyed((b"a", b"4")))
    log.roll()
    clean(log)
    assert [each.base_offset for each in log.segments.first.headers_from(0)] == [1, 2, 3]
    clean(log)
    time.advance(5000)
    clean(log)
    assert [each.base_offset for each in log.segments.first.headers_from(0)] == [2, 3]


def test_a_marker_above_the_cleanable_part_aborts_records_in_it(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"a", b"1")), keyed((b"a", b"2"), producer=(5, 0, 0), transactional=True), keyed((b"b", b"3")))
    log.roll()
    end_transaction(log, 5, commit=False)
    clean(log)
    assert [(offset, value) for offset, key, value in left(log) if key in (b"a", b"b")] == [(0, b"1"), (2, b"3")]
    assert [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 4)] == [(1, 3)]


def test_segments_are_joined_and_their_snapshots_removed(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for at in range(6):
        write(log, keyed((b"%d" % at, b"x" * 100), producer=(1, 0, at)))
        log.roll()
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, 5, 6]
    assert log.snapshots.offsets == [5, 6]
    assert {file.name for file in Path(log.directory).glob("*.snapshot")} == {f"{at:020d}.snapshot" for at in (5, 6)}


def test_a_slice_is_unchanged_after_its_segment_was_cleaned(tmp_path: Path) -> None:
    time = Time()
    log = _log(tmp_path, time)
    write(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll()
    piece = log.read(0, 1 << 20)
    assert piece is not None
    before = piece.tobytes()
    clean(log)
    time.advance(COMPACT.file_delete_delay_ms)
    assert not list(Path(log.directory).glob("*.deleted"))
    assert piece.tobytes() == before
    assert left(log) == [(1, b"a", b"2")]


def test_a_truncation_below_the_first_dirty_offset_lowers_it(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for value in (b"1", b"2", b"3"):
        write(log, keyed((b"a", value)))
        log.roll()
    clean(log)
    assert log.cleaner.checkpoint == 3
    log.truncate_to(2)
    assert log.cleaner.checkpoint == log.segments.active.base_offset == 0
    write(log, keyed((b"a", b"new")))
    log.roll()
    clean(log)
    assert [value for _, _, value in left(log)] == [b"new"]


def test_a_truncation_into_a_gap_ends_the_log_there(tmp_path: Path) -> None:
    """A follower can then copy the leader's cleaned log from any offset on."""
    log = _log(tmp_path)
    for value in (b"1", b"2", b"3"):
        write(log, keyed((b"a", value)))
    log.roll()
    write(log, keyed((b"b", b"4")))
    clean(log)
    assert log.truncate_to(1)
    assert (log.log_end_offset, left(log)) == (1, [])
    write(log, keyed((b"a", b"new")))
    assert left(log) == [(1, b"a", b"new")]


def test_a_truncation_into_a_gap_at_a_segments_end_ends_the_log_before_it(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"a", b"1")))
    far = keyed((b"b", b"2"))
    far[0:8] = (9).to_bytes(8, "big")
    log.roll()
    log.log_end_offset = 9
    log.roll_segment()
    assert log.append_as_follower(far) is not None
    log.advance_log_start_offset(1)
    assert log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset, left(log)) == (1, 1, [])


@pytest.mark.parametrize("what", ["truncate", "close", "delete"])
def test_truncation_close_and_deletion_end_the_pass(tmp_path: Path, what: str) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, COMPACT)
    for value in (b"1", b"2", b"3"):
        write(log, keyed((b"a", value)))
        log.roll()
    cleaning = begin(log)
    slices = cleaning.slices()
    while not isinstance(step := next(slices), SegmentReplacement):
        pass
    assert len(list(tmp_path.glob("t-0/*.cleaned"))) == 3
    {
        "truncate": lambda: log.truncate_to(1),
        "close": directory.close,
        "delete": lambda: directory.delete_log("t", 0, "0" * 32),
    }[what]()
    assert cleaning.is_interrupted
    cleaning.abort()
    cleaning.discard()
    assert step.new.file is None
    assert log.cleaner.checkpoint is None
    if what != "delete":
        assert not list(tmp_path.glob("t-0/*.cleaned"))


def test_retention_waits_for_the_end_of_a_pass(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=1000, retention_ms=10)
    time = Time()
    log = _log(tmp_path, time, config)
    write(log, keyed((b"a", b"1")))
    log.roll()
    time.advance(20)
    counts = []
    clean(log, between=lambda: counts.append(log.delete_old_segments(1)))
    assert set(counts) == {0}
    assert log.delete_old_segments(1) == 1
    assert log.log_start_offset == 1


def test_a_corrupt_batch_ends_the_pass_with_an_error(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, keyed((b"a", b"1"), (b"b", b"2")), keyed((b"a", b"3")))
    log.roll()
    file = Path(log.directory) / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[65] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="wrong CRC"):
        clean(log)


def test_the_cleaner_checkpoint_has_kafkas_format_and_is_read_at_a_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, COMPACT)
    directory.create_log("u", 0, TOPIC_ID, COMPACT)
    directory.prepare_checkpoints()
    directory.write_checkpoints()
    assert not (tmp_path / "cleaner-offset-checkpoint").exists()
    write(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll()
    clean(log)
    directory.prepare_cleaner_checkpoint()
    assert directory.write_cleaner_checkpoint()
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == b"0\n1\nt 0 2\n"
    directory.close_without_writing()
    directory, log = _opened(tmp_path)
    assert log.cleaner.checkpoint == 2
    # A new partition of the same name has no checkpoint.
    directory.delete_log("t", 0, "0" * 32)
    assert directory.create_log("t", 0, TOPIC_ID, COMPACT).cleaner.checkpoint is None
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == b"0\n0\n"


@pytest.mark.parametrize("seed", range(20))
def test_cleaning_keeps_the_last_value_of_every_key(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    time = Time()
    directory = open_directory(tmp_path, time)
    log = directory.create_log("t", 0, TOPIC_ID, COMPACT)
    sequences = {7: 0, 8: 0, 9: 0}
    written: list[tuple[int, bytes | None, bytes | None]] = []
    for _ in range(chance.randint(20, 150)):
        producer_id = chance.choice([-1, *sequences])
        records = [
            (
                b"key %d" % chance.randint(0, 12),
                chance.choice((None, b"%d" % chance.randint(0, 99) * chance.randint(1, 30))),
            )
            for _ in range(chance.randint(1, 6))
        ]
        offset = log.log_end_offset
        producer = (-1, -1, -1) if producer_id < 0 else (producer_id, 0, sequences[producer_id])
        write(
            log, keyed(*records, producer=producer, compression=chance.choice(list(Compression)), timestamp=time.now_ms)
        )
        if producer_id >= 0:
            sequences[producer_id] += len(records)
        written += [(offset + at, key, value) for at, (key, value) in enumerate(records)]
        time.advance(chance.randint(0, 300))
        if chance.random() < 0.05 and len(log.segments) > 1:
            capacity = chance.choice((5, 1000)) * BYTES_PER_ENTRY
            clean(log, config=LIMITS._replace(dedupe_buffer_bytes=capacity, io_buffer_bytes=chance.choice((200, 4096))))
            assert last_of_each_key(left(log)) == last_of_each_key(written)
    log.roll()
    clean(log)
    assert last_of_each_key(left(log)) == last_of_each_key(written)
    held = left(log)
    last_sequences = {entry.producer_id: entry.batches[-1].last_sequence for entry in log.producers}
    log.producers.clear()
    log.snapshots.remove_all()
    log.rebuild_producer_state()
    assert {entry.producer_id: entry.batches[-1].last_sequence for entry in log.producers} == last_sequences
    directory.close_without_writing()
    assert left(_opened(tmp_path)[1]) == held


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP], ids=str)
@pytest.mark.parametrize("keys_in_map", [1 << 20, 90])
def test_a_large_batch_is_cleaned_in_slices_as_in_one_step(
    tmp_path: Path, compression: Compression, keys_in_map: int
) -> None:
    config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=5000)
    left_over, slices = [], []
    for name, slice_us in (("bit by bit", 7), ("in one go", 1 << 20)):
        chance, time = random.Random(3), Time()
        log = _log(tmp_path / name, time, config)
        for at in range(3):
            records = [
                (b"%d" % chance.randrange(150), None if chance.random() < 0.2 else b"value %d" % at) for _ in range(200)
            ]
            write(log, keyed(*records, timestamp=START_MS + at, compression=compression))
            log.roll()
        found = []
        count = 0

        def one_more() -> None:
            nonlocal count
            count += 1

        for _ in range(3):  # before the second pass tombstones have a delete horizon, before the third it is over
            cleaner_config = CleanerConfig(keys_in_map * BYTES_PER_ENTRY, 1.0, 1 << 16)
            clean(log, slice_us=slice_us, config=cleaner_config, between=one_more)
            found.append([piece.tobytes() for piece in pieces_of(log)])
            time.advance(3000)
        left_over.append(found)
        slices.append(count)
    assert left_over[0] == left_over[1]
    # A record takes part in several slices: read, put into the map; read again, filtered, and kept.
    assert slices[0] > 4 * 600 / 7
    assert slices[1] < 100


def pieces_of(log: Log) -> Iterator[FileSlice]:
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20)) is not None:
        yield piece
        offset = log.segments.offset_after_slice(piece, log.log_end_offset)
