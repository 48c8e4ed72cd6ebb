"""One partition's log: a row of segments, the producers and the leader epochs that belong to it.

Owns which offsets there are: appending, reading, truncating, rolling, deleting old segments, and when each file is
written. Knows no replica and no high watermark; a reader's limit is passed in. All of it runs on one thread but
`flush`, which may run on another. Trouble with the disk is raised, and takes this log, not its neighbours, offline.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek_log import recovery
from odradek_log.append import NOTHING_APPENDED, AppendInfo, AppendRejected, too_large
from odradek_log.config import LogConfig
from odradek_log.environment import LogEnvironment
from odradek_log.epoch_file import EpochFile
from odradek_log.errors import CorruptLogError, LogClosedError, LogOfflineError, OffsetOutOfRangeError
from odradek_log.file_names import PARTITION_METADATA
from odradek_log.leader_epochs import LeaderEpochs
from odradek_log.partition_metadata import decode as decode_topic_id
from odradek_log.partition_metadata import encode as encode_topic_id
from odradek_log.producer_replay import replay, tell
from odradek_log.producer_snapshots import ProducerSnapshots
from odradek_log.producer_state import AppendOrigin, KeptBatch, Producers
from odradek_log.retention import SegmentFacts, deletable
from odradek_log.segment import FileSlice, Segment
from odradek_log.segments import Segments
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.batch import RecordBatchHeader, check_crc, iterate, place
from odradek_wire.records.errors import CorruptRecordError
from odradek_wire.records.validation import validate
from odradek_wire.uuid import Uuid

if TYPE_CHECKING:
    from pathlib import Path

_CLIENT = AppendOrigin.CLIENT


class Log:
    """A partition's records on disk. Make one with `create` or `open`; better, let `LogDirectory` do it."""

    __slots__ = (
        "_config",
        "_env",
        "_epoch_file",
        "_last_base",
        "_last_position",
        "_segments",
        "_snapshots",
        "directory",
        "failure",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "producers",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig,
        loaded: recovery.LoadedLog,
    ) -> None:
        self._env = env
        self._config = config
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.leader_epochs = loaded.epochs
        self._epoch_file = EpochFile(env, directory, loaded.epochs)
        self.producers = Producers(env.producer_expiration_ms)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.next_offset
        self.recovery_point = 0
        """Everything below it is known to be on the disk."""
        self.failure: Exception | None = None
        """Why this log is offline."""
        self._segments = Segments(env, directory, loaded.segments)
        self._segments.active.begin_appends(config)
        self._snapshots = loaded.snapshots
        # Where the last batch stands: consumers that wait at the end ask for it next.
        self._last_base = -1
        self._last_position = 0

    @classmethod
    def create(
        cls,
        directory: Path | str,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig,
        env: LogEnvironment,
    ) -> Log:
        """A new, empty partition directory."""
        path = os.fspath(directory)
        env.disk.make_directory(path)
        if topic_id is not None:
            env.disk.write_file(f"{path}/{PARTITION_METADATA}", encode_topic_id(topic_id))
        snapshots = ProducerSnapshots(env, path, [])
        loaded = recovery.LoadedLog([Segment.unwritten(env, path, config)], 0, 0, LeaderEpochs(), snapshots)
        return cls(env, path, topic, partition, topic_id, config, loaded)

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        env: LogEnvironment,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
    ) -> Log:
        """An existing partition directory, repaired if it has to be.

        The topic id is what `partition.metadata` says. Raises `CorruptLogError` or `OSError`.
        """
        path = os.fspath(directory)
        loaded = recovery.load(
            env,
            path,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
        )
        topic_id = _read_topic_id(env, f"{path}/{PARTITION_METADATA}")
        log = cls(env, path, topic, partition, topic_id, config, loaded)
        log.recovery_point = min(recovery_point, log.log_end_offset)
        log._load_producers(clean_shutdown=clean_shutdown)
        return log

    # --- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """Other settings, from the next append on."""
        self._config = config
        self._segments.active.begin_appends(config)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def first_base_offset(self) -> int:
        """Where the oldest segment begins."""
        return self._segments.first.base_offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give an id to a directory that has none, as one written by an old release."""
        assert self.topic_id is None
        self._env.disk.replace_file(f"{self.directory}/{PARTITION_METADATA}", encode_topic_id(topic_id))
        self.topic_id = topic_id

    # --- appending

    def append(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = _CLIENT,
        strict: bool = False,
    ) -> AppendInfo | AppendRejected:
        """Append as the leader. `records` is writable and gets its offsets in place.

        By default a batch is judged by its header where the topic's settings allow that; `strict` looks at every
        record, as Kafka does. Raises `OSError` when the disk fails; the log is offline then, the records not in it.
        """
        if self.failure is not None:
            raise self._offline()
        config = self._config
        rules = config.strict_rules if strict else config.rules
        if origin is not _CLIENT:
            rules = config.internal_rules
        outcome = validate(records, rules, self._env.wall_ms(), partition=self.name)
        if isinstance(outcome, AppendRejected):
            return outcome
        batch, header, max_timestamp, _, append_time, _ = outcome
        if header is None:
            return AppendInfo(NOTHING_APPENDED, NOTHING_APPENDED, -1, self.log_start_offset)
        size = len(batch)
        if size > config.max_message_bytes or size > config.segment_bytes:
            return too_large(self.name, size, config)
        producer_id = header.producer_id
        if producer_id >= 0 and origin is _CLIENT:
            known = self.producers.check(header)
            if known is not None:
                if isinstance(known, KeptBatch):
                    first, last, timestamp = known.first_offset, known.last_offset, known.timestamp
                    return AppendInfo(first, last, timestamp, self.log_start_offset, True)
                return AppendRejected(known.error, known.message)
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        segment = self._segments.active
        try:
            if segment.is_full_for(size, max_timestamp, last_offset, config):
                segment = self._roll()
            if leader_epoch != self.leader_epochs.latest or self.leader_epochs.dirty:
                self._epoch_file.begin(leader_epoch, first_offset)
            # Either the caller's writable buffer or a new one.
            place(batch, header, first_offset, leader_epoch)  # type: ignore[arg-type]
            position = segment.size
            segment.append(batch, last_offset, max_timestamp)
        except (OSError, CorruptLogError) as error:
            self._fail("append", error)
            raise
        self._last_base = first_offset
        self._last_position = position
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            header.base_offset = first_offset
            self._tell(header, batch, segment)
        if last_offset + 1 - self.recovery_point >= config.flush_messages:
            self.flush()
        return AppendInfo(first_offset, last_offset, append_time, self.log_start_offset)

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo | None:
        """Append what the partition's leader answered: whole batches with their offsets; a last one that was cut off is
        left out. None when there is no whole batch.

        Raises `CorruptRecordError` for a batch that is damaged or does not follow (the leader's fault; the sound ones
        before it are in the log), `OSError` when the disk fails.
        """
        if self.failure is not None:
            raise self._offline()
        view = memoryview(records)
        config = self._config
        first_offset = -1
        run: list[RecordBatchHeader] = []
        next_offset = self.log_end_offset
        try:
            for header in iterate(view, allow_partial=True):
                check_crc(view, header)
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise CorruptRecordError(f"the batch at offset {header.base_offset} does not follow {next_offset}")
                if first_offset < 0:
                    first_offset = header.base_offset
                size = header.end - (run[0].position if run else header.position)
                segment = self._segments.active
                if segment.is_full_for(size, header.max_timestamp, header.last_offset, config):
                    self._write_run(view, run)
                    run = []
                    # The leader may have compacted offsets away: the new segment is named after what comes.
                    self.log_end_offset = header.base_offset
                    if segment.size:
                        self._roll()
                run.append(header)
                next_offset = header.next_offset
        except (OSError, CorruptLogError) as error:
            self._fail("append", error)
            raise
        finally:
            if self.failure is None:
                self._write_run(view, run)
        return AppendInfo(first_offset, next_offset - 1, -1, self.log_start_offset) if first_offset >= 0 else None

    def _write_run(self, view: memoryview, run: list[RecordBatchHeader]) -> None:
        """Batches that stand side by side in `view` and fit into the active segment, in one write."""
        if not run:
            return
        segment = self._segments.active
        try:
            for header in run:
                if header.partition_leader_epoch > self.leader_epochs.latest:
                    self._epoch_file.begin(header.partition_leader_epoch, header.base_offset)
            last = run[-1]
            self._last_base = last.base_offset
            self._last_position = segment.size + last.position - run[0].position
            segment.append_batches(view[run[0].position : last.end], run)
        except (OSError, CorruptLogError) as error:
            self._fail("append", error)
            raise
        self.log_end_offset = last.next_offset
        for header in run:
            if header.producer_id >= 0:
                self._tell(header, view[header.position : header.end], segment)

    def _tell(self, header: RecordBatchHeader, batch: bytes | bytearray | memoryview, segment: Segment) -> None:
        aborted = tell(self.producers, header, batch)
        if aborted is not None:
            with self._working("index an aborted transaction"):
                segment.append_aborted(aborted)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True) -> FileSlice | None:
        """Consecutive batches of one segment, beginning with the one that holds `offset`, at most `max_bytes` of them
        (the last may be cut off there), none at or above `limit` (default: the log's end).

        `min_one`: the first batch comes whole even if it is larger. None when there is nothing: at the limit, or when
        the first batch does not fit. `OffsetOutOfRangeError` outside [log_start_offset, log_end_offset].
        """
        if self.failure is not None:
            raise self._offline()
        end = self.log_end_offset
        if limit is None or limit > end:
            limit = end
        if offset >= limit:
            if offset > end:
                raise OffsetOutOfRangeError(f"offset {offset} is above the log's end {end}")
            return None
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is below the log's start {self.log_start_offset}")
        segment = self._segments.active
        try:
            if offset == self._last_base:
                position = self._last_position
                size = segment.size - position
            else:
                if offset < segment.base_offset:
                    segment = self._segments.containing(offset)
                found = segment.locate(offset)
                while found is None:
                    # Compaction leaves gaps, also at a segment's end.
                    if segment is self._segments.active:
                        return None
                    segment = self._segments.after(segment)
                    found = segment.locate(offset)
                position, size, _ = found
            available = (segment.size if limit == end else self._position_of_limit(segment, limit)) - position
        except (OSError, CorruptLogError) as error:
            self._fail("read", error)
            raise
        if available <= 0:
            return None
        if available > max_bytes:
            if size > max_bytes:
                if not min_one:
                    return None
                available = size
            else:
                available = max_bytes
        file = segment.file
        return FileSlice(file if file is not None else segment.open(), position, available)

    def _position_of_limit(self, segment: Segment, limit: int) -> int:
        if limit <= segment.base_offset:
            return 0
        if segment is not self._segments.active and limit >= self._segments.after(segment).base_offset:
            return segment.size
        found = segment.locate(limit)
        return segment.size if found is None else found[0]

    # --- looking up

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record whose timestamp is not below the wanted one."""
        with self._working("look up a timestamp"):
            return self._segments.find_timestamp(timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that has the log's largest timestamp."""
        with self._working("look up the largest timestamp"):
            return self._segments.find_largest_timestamp(self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those that have records or their marker in [start, end): what a reader of committed records must skip."""
        found = []
        with self._working("read aborted transactions"):
            for segment in self._segments.from_offset(start):
                for transaction in segment.aborted():
                    if transaction.last_offset >= start and transaction.first_offset < end:
                        found.append(transaction)
                    if transaction.last_stable_offset >= end:
                        return found
        return found

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) when it cannot be told."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- segments come and go

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        with self._working("roll"):
            if self._segments.active.size:
                self._roll()

    def maybe_roll(self) -> None:
        """Begin a new segment if `segment.ms` says so although nothing is appended."""
        active = self._segments.active
        if active.size and active.is_full_for(0, self._env.wall_ms(), active.base_offset, self._config):
            self.roll()

    def _roll(self) -> Segment:
        self._snapshots.take(self.producers, self.log_end_offset)
        self._last_base = -1
        return self._segments.begin(self.log_end_offset, self._config)

    def delete_old_segments(self, limit: int) -> int:
        """Give up what retention allows, nothing at or above `limit` (the high watermark); returns how many segments.

        The files are renamed to `.deleted` now and removed after `file.delete.delay.ms`.
        """
        with self._working("delete old segments"):
            segments = list(self._segments)
            facts = [
                SegmentFacts(end, segment.size, segment.retention_timestamp)
                for end, segment in zip(self._segments.ends(self.log_end_offset), segments, strict=True)
            ]
            count = deletable(facts, self._config, self.log_start_offset, limit, self._env.wall_ms())
            if count == len(segments):
                self._roll()
            if count:
                self._remove(segments[:count])
                self._start_at(max(self.log_start_offset, self._segments.first.base_offset))
        return count

    def advance_log_start_offset(self, offset: int) -> bool:
        """DeleteRecords: nothing below `offset` is served any more; its segments go with the next retention."""
        assert offset <= self.log_end_offset
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        return True

    def _start_at(self, offset: int) -> None:
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def _remove(self, segments: list[Segment]) -> None:
        paths = self._segments.remove(segments)
        for segment in segments:
            paths += self._snapshots.mark_deleted(segment.base_offset)
        self._segments.remove_later(paths, self._config.file_delete_delay_ms)

    # --- truncating

    def truncate_to(self, offset: int) -> bool:
        """Forget the records at and above `offset`; True when there were any.

        Inside a batch, the whole batch goes and the log ends before it. (Kafka, too, drops the batch but lets the log
        end at `offset`, so that a follower would never ask for the records in between.)
        """
        if offset >= self.log_end_offset:
            return False
        with self._working("truncate"):
            if offset < self._segments.first.base_offset:
                self._begin_anew_at(offset)
            else:
                self._cut_at(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and begin again, empty, at `offset`."""
        with self._working("truncate"):
            self._begin_anew_at(offset)

    def _cut_at(self, offset: int) -> None:
        segment, *later = self._segments.from_offset(offset)
        if later:
            self._remove(later)
            self._segments.make_active(segment, self._config)
        self.log_start_offset = min(self.log_start_offset, offset)
        found = segment.locate(offset)
        if found is not None:
            position, _, base_offset = found
            segment.truncate(position, base_offset)
            offset = max(base_offset, self.log_start_offset)
            if offset > base_offset and position == 0:
                # Nothing is left, and the segment's name would say that less was deleted than was.
                self._begin_anew_at(offset)
                return
        self._ends_at(offset)

    def _begin_anew_at(self, offset: int) -> None:
        self._remove(list(self._segments))
        self._snapshots.remove_all()
        self._segments.begin(offset, self._config)
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self._ends_at(offset)

    def _ends_at(self, offset: int) -> None:
        self._last_base = -1
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._epoch_file.write_if_dirty()
        self.producers.clear()
        self._load_producers(clean_shutdown=False)

    # --- producers

    def _load_producers(self, *, clean_shutdown: bool) -> None:
        """From the newest readable snapshot, and the batches after it."""
        never_had_one = not self._snapshots.offsets
        snapshot = self._snapshots.load_newest(self.producers, self.log_end_offset)
        if never_had_one and clean_shutdown:
            # Whoever closed this log cleanly and left no snapshot knew of no producer.
            return
        start = max(self.log_start_offset, snapshot or 0)
        if start >= self.log_end_offset:
            return
        replay(self.producers, self._segments, start)
        self.producers.remove_expired(self._env.wall_ms())

    # --- the end

    def flush(self) -> None:
        """Everything that stands in the log now is on the disk when this returns. Any thread."""
        self._flush(self.log_end_offset)

    def _flush(self, end: int) -> None:
        point = self.recovery_point
        try:
            if end > point:
                for segment in self._segments.from_offset(point):
                    if segment.base_offset < end:
                        segment.flush()
            self._epoch_file.sync()
            self.recovery_point = max(point, end)
        except FileNotFoundError:
            # Retention took a segment away meanwhile; the next flush does the rest.
            return
        except OSError as error:
            self._fail("flush", error)
            raise

    def flush_sealed(self) -> None:
        """Flush all but the active segment, so that a start after a crash reads no more than that one. Any thread."""
        if self.failure is None and self.recovery_point < self._segments.active.base_offset:
            self._flush(self._segments.active.base_offset)

    def close(self) -> None:
        """Flush, write indexes and producers, give descriptors back: the directory is cleanly shut down."""
        if self.failure is not None:
            return
        with self._working("close"):
            if self.log_end_offset:
                # An epoch without a record is nothing that anybody could ask for.
                self._epoch_file.write_if_dirty()
            self.flush()
            self._snapshots.take(self.producers, self.log_end_offset)
            for segment in self._segments:
                segment.seal()
                segment.release()
        self.failure = LogClosedError(f"{self.name} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether `close` succeeded, so that the directory is as Kafka leaves it after a clean shutdown."""
        return isinstance(self.failure, LogClosedError)

    def abandon(self) -> None:
        """Give the descriptors back and write nothing."""
        for segment in self._segments:
            segment.release()
        self.failure = LogOfflineError(f"{self.name} was abandoned")

    def rename(self, directory: str) -> None:
        """Move to another name, to be deleted or set aside: nothing more is appended or read, but answers that hold a
        slice can still be sent."""
        self._env.disk.rename(self.directory, directory)
        self.directory = directory
        self.abandon()

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """The boundary at which trouble with the disk takes the log offline. (The hot paths spell it out.)"""
        if self.failure is not None:
            raise self._offline()
        try:
            yield
        except (OSError, CorruptLogError) as error:
            self._fail(what, error)
            raise

    def _fail(self, what: str, error: Exception) -> None:
        if self.failure is not None:
            return  # said already, by an inner piece of work
        self.failure = error
        self._env.reporter.error(
            "partition goes offline",
            partition=self.name,
            directory=self.directory,
            could_not=what,
            error=f"{type(error).__name__}: {error}",
        )

    def _offline(self) -> LogOfflineError:
        return LogOfflineError(f"{self.name} is offline: {self.failure}")

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"


def _read_topic_id(env: LogEnvironment, path: str) -> Uuid | None:
    """None without the file, or when a power loss left nothing in it."""
    try:
        data = env.disk.read_file(path)
    except FileNotFoundError:
        return None
    return decode_topic_id(data, path) if data else None
