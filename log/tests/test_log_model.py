"""A log against a model, a plain list of batches, under random sequences of all operations of a log."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log.tests.log_kit import TOPIC_ID, RecordingReporter, Time, batch, open_directory, read_all

from odradek_log.append import AppendInfo
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_wire.records.attributes import Compression
from odradek_wire.records.batch import iterate

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=150, retention_bytes=3000, retention_ms=10_000, segment_ms=5_000
)
PRODUCER = 77


class Batch(NamedTuple):
    base_offset: int
    values: tuple[bytes, ...]
    timestamp: int
    epoch: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


class LogAndItsModel(RuleBasedStateMachine):
    """The model has the batches that must be readable. It takes the effect of retention from the log start offset."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.time = Time()
        self.reporter = RecordingReporter()
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequence = 0
        self.directory = open_directory(self.path, self.time, open_files=3, reporter=self.reporter)

    @initialize()
    def create(self) -> None:
        self.directory.create_log("t", 0, TOPIC_ID, CONFIG)

    @property
    def log(self) -> Log:
        return self.directory.logs["t", 0]

    def _keep(self, values: list[bytes], timestamp: int, info: object) -> None:
        assert info == AppendInfo(self.end, self.end + len(values) - 1, -1, self.start)
        self.batches.append(Batch(self.end, tuple(values), timestamp, self.epoch))
        self.end += len(values)

    @rule(
        values=st.lists(st.binary(max_size=60), min_size=1, max_size=6),
        late=st.integers(0, 3000),
        codec=st.sampled_from(Compression),
    )
    def append(self, values: list[bytes], late: int, codec: Compression) -> None:
        self.time.advance(100)
        timestamp = self.time.now_ms - late
        self._keep(
            values, timestamp, self.log.append(batch(*values, timestamp=timestamp, compression=codec), self.epoch)
        )

    @rule(values=st.lists(st.binary(max_size=20), min_size=1, max_size=3))
    def append_idempotently_and_again(self, values: list[bytes]) -> None:
        records = batch(*values, timestamp=self.time.now_ms, producer=(PRODUCER, 0, self.sequence))
        again = bytearray(records)
        info = self.log.append(records, self.epoch)
        self._keep(values, self.time.now_ms, info)
        self.sequence += len(values)
        assert isinstance(info, AppendInfo)
        repeated = self.log.append(again, self.epoch)
        assert repeated == info._replace(log_append_time_ms=self.time.now_ms, duplicate=True)

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        offset = self.start + round(at * (self.end - self.start))
        self.log.truncate_to(offset)
        while self.batches and self.batches[-1].next_offset > offset:
            self.batches.pop()
        assert (self.batches[-1].next_offset if self.batches else self.start) <= self.log.log_end_offset <= offset
        self.end = self.log.log_end_offset
        self._read_sequence()

    def _read_sequence(self) -> None:
        """Take the next sequence from the log: a truncation, deletion or restart may have removed the last batches."""
        entry = self.log.producers.get(PRODUCER)
        self.sequence = (entry.last_sequence + 1) if entry else 0

    @rule(at=st.floats(0, 1))
    def delete_records(self, at: float) -> None:
        offset = self.start + round(at * (self.end - self.start))
        self.log.advance_log_start_offset(offset)
        self._starts_at(offset)

    @rule(wait_ms=st.integers(0, 4000))
    def delete_old_segments(self, wait_ms: int) -> None:
        self.time.advance(wait_ms)
        self.log.delete_old_segments(self.end)
        assert self.start <= self.log.log_start_offset <= self.end
        kept = [kept for kept in self.batches if kept.base_offset >= self.log.log_start_offset]
        assert all(self.time.now_ms - kept.timestamp <= 10_000 + 5_000 + 3_000 + 100 for kept in kept)
        self._starts_at(self.log.log_start_offset)

    def _starts_at(self, offset: int) -> None:
        self.start = offset
        self.batches = [kept for kept in self.batches if kept.next_offset > offset]

    @rule()
    def remove_deleted_files(self) -> None:
        self.time.advance(CONFIG.file_delete_delay_ms)
        assert not list((self.path / "t-0").glob("*.deleted"))

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def close_and_open(self) -> None:
        self.directory.close()
        self._open()
        assert self.directory.clean_shutdown

    @rule(checkpoint=st.booleans())
    def crash_and_open(self, checkpoint: bool) -> None:
        if checkpoint:
            self.directory.prepare_checkpoints()
            self.directory.write_checkpoints()
        self.directory.close_without_writing()
        self._open()
        # As in Kafka, a start offset that is in no checkpoint is lost.
        self.log.advance_log_start_offset(self.start)
        self._read_sequence()

    def _open(self) -> None:
        self.directory = open_directory(self.path, self.time, open_files=3, reporter=self.reporter)
        self.directory.load(lambda _: CONFIG)
        assert self.directory.failed == {}

    @precondition(lambda self: self.end > self.start)
    @rule(at=st.floats(0, 0.999), max_bytes=st.integers(1, 2000))
    def read(self, at: float, max_bytes: int) -> None:
        offset = self.start + int(at * (self.end - self.start))
        piece = self.log.read(offset, max_bytes)
        assert piece is not None
        expected = [kept for kept in self.batches if kept.next_offset > offset]
        headers = list(iterate(piece.tobytes(), allow_partial=True))
        assert headers, "the first batch is whole"
        assert len(piece) <= max(max_bytes, headers[0].size_in_bytes)
        found = [(header.base_offset, header.count, header.partition_leader_epoch) for header in headers]
        assert found == [(kept.base_offset, len(kept.values), kept.epoch) for kept in expected[: len(found)]]

    @precondition(lambda self: len(self.batches) > 1)
    @rule(at=st.floats(0, 0.999), which=st.floats(0, 0.999))
    def read_below_a_limit(self, at: float, which: float) -> None:
        limit = self.batches[int(which * len(self.batches))].base_offset
        offset = self.start + int(at * (self.end - self.start))
        piece = self.log.read(offset, 1 << 20, limit=limit)
        if offset >= limit:
            assert piece is None
        else:
            assert piece is not None
            assert all(header.base_offset < limit for header in iterate(piece.tobytes()))

    @rule(back=st.integers(0, 30_000))
    def look_up_a_timestamp(self, back: int) -> None:
        timestamp = self.time.now_ms - back
        found = self.log.offset_for_timestamp(timestamp)
        newer = [kept for kept in self.batches if kept.timestamp >= timestamp]
        expected = (max(newer[0].base_offset, self.start), newer[0].timestamp, newer[0].epoch) if newer else None
        assert found == expected

    @invariant()
    def the_log_equals_the_model(self) -> None:
        if ("t", 0) not in self.directory.logs:
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        expected = [
            (kept.base_offset + at, value)
            for kept in self.batches
            for at, value in enumerate(kept.values)
            if kept.base_offset + at >= self.start
        ]
        assert [(record.offset, record.value) for record in read_all(self.log)] == expected
        assert self.log.size_bytes == sum(path.stat().st_size for path in (self.path / "t-0").glob("*.log"))

    def teardown(self) -> None:
        self.directory.close_without_writing()
        shutil.rmtree(self.path)


LogAndItsModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAndItsModel = LogAndItsModel.TestCase
