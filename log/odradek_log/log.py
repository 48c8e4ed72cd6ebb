"""One partition's log: append as the leader, read, look up offsets.

Owns the state that the parts of a log share, and takes the log offline when its disk fails; other logs are not
affected. `log_opening` creates and opens a log, `follower_append` appends as a follower, `truncation` removes records
at the end, `segment_deletion` at the beginning, `log_flusher` forces them to the disk. Knows no replicas and no high
watermark: the caller passes the limit of a read. All methods run on one thread, except those that say "any thread".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek_log import follower_append, segment_deletion, truncation
from odradek_log.append import NOTHING_APPENDED, AppendInfo, Rejection, too_large
from odradek_log.cleaner_state import CleanerState
from odradek_log.file_names import PARTITION_METADATA
from odradek_log.leader_epoch_checkpoint_file import LeaderEpochCheckpointFile
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError, LogClosedError, LogOfflineError, OffsetOutOfRangeError
from odradek_log.log_flusher import LogFlusher
from odradek_log.log_loader import LoadedLog
from odradek_log.log_segment import FileSlice, LogSegment
from odradek_log.log_segments import LogSegments
from odradek_log.partition_metadata import encode as encode_topic_id
from odradek_log.producer_replay import rebuild, update
from odradek_log.producer_state_manager import AppendOrigin, BatchMetadata, ProducerStateManager
from odradek_log.transaction_index import AbortedTransaction
from odradek_log.verification_guard import NOT_REQUIRED, VerificationGuard
from odradek_wire.records.batch import RecordBatchHeader, set_offset_and_leader_epoch
from odradek_wire.records.log_validator import validate
from odradek_wire.uuid import Uuid

_CLIENT = AppendOrigin.CLIENT
_NO_OFFSET = -1
_UNBOUNDED = 1 << 62


class Log:
    """The records of one partition on disk. `LogDirectory` creates and opens logs."""

    __slots__ = (
        "_config",
        "_last_batch_offset",
        "_last_batch_position",
        "cleaner",
        "directory",
        "env",
        "flusher",
        "leader_epoch_file",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "name",
        "offline_cause",
        "on_failure",
        "on_roll",
        "partition",
        "producers",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig,
        loaded: LoadedLog,
        recovery_point: int = 0,
    ) -> None:
        self.env = env
        self._config = config
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.leader_epochs = loaded.epochs
        self.leader_epoch_file = LeaderEpochCheckpointFile(env, directory, loaded.epochs)
        self.producers = ProducerStateManager(env.producer_expiration_ms)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.next_offset
        self.offline_cause: Exception | None = None
        """The error that took this log offline, or a LogOfflineError after `close` or `close_without_writing`; None
        before that."""
        self.on_failure: Callable[[Exception], object] | None = None
        """Called once when a disk error takes this log offline, on the thread that met the error."""
        self.on_roll: Callable[[Log], object] | None = None
        """Called after each roll, so that another thread runs `flush_sealed`."""
        self.segments = LogSegments(env, directory, loaded.segments)
        self.segments.active.activate(config)
        self.snapshots = loaded.snapshots
        self.cleaner = CleanerState()
        self.flusher = LogFlusher(self.segments, self.leader_epoch_file, self.snapshots, recovery_point, env.wall_ms)
        self.forget_last_batch()

    # --- properties

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from the next append on."""
        self._config = config
        self.segments.active.activate(config)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self.segments.first.base_offset

    @property
    def recovery_point(self) -> int:
        """All records below it are on the disk."""
        return self.flusher.recovery_point

    @property
    def recovery_point_to_checkpoint(self) -> int:
        """The offset for the recovery point checkpoint (`LogFlusher.recovery_point_to_checkpoint`)."""
        return self.flusher.recovery_point_to_checkpoint

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write the topic id into a directory that has none, because an old release created it."""
        assert self.topic_id is None
        with self.handling_disk_errors("write the topic id"):
            self.env.disk.replace_file(f"{self.directory}/{PARTITION_METADATA}", encode_topic_id(topic_id))
        self.topic_id = topic_id

    # --- appending

    def append(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = _CLIENT,
        strict: bool = False,
        guard: VerificationGuard | None = NOT_REQUIRED,
    ) -> AppendInfo | Rejection:
        """Append as the leader; write the offsets into `records`, which must be writable. A batch that begins a
        transaction needs the `guard` that `ProducerStateManager.begin_verification` returned, after the coordinator
        has confirmed the transaction.

        By default, checks only the header of a batch where the settings of the topic allow that; `strict` reads every
        record, as Kafka does. Raises OSError if the disk fails: then the log is offline, without the records.
        """
        if self.offline_cause is not None:
            raise self.offline_error()
        config = self._config
        rules = config.strict_rules if strict else config.rules
        if origin is not _CLIENT:
            rules = config.internal_rules
        outcome = validate(records, rules, self.env.wall_ms(), partition=self.name)
        if isinstance(outcome, Rejection):
            return outcome
        batch, header, max_timestamp, _, append_time, _ = outcome
        if header is None:
            return AppendInfo(NOTHING_APPENDED, NOTHING_APPENDED, -1, self.log_start_offset)
        size = len(batch)
        if size > config.max_message_bytes or size > config.segment_bytes:
            return too_large(self.name, size, config)
        producer_id = header.producer_id
        if producer_id >= 0:
            if origin is _CLIENT:
                known = self.producers.check(header, guard)
            else:
                known = None if header.is_control else self.producers.check_coordinator_batch(header, guard)
            if known is not None:
                if isinstance(known, BatchMetadata):
                    first, last, timestamp = known.first_offset, known.last_offset, known.timestamp
                    return AppendInfo(first, last, timestamp, self.log_start_offset, True)
                return known
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        segment = self.segments.active
        try:
            if segment.should_roll(size, max_timestamp, last_offset, config):
                segment = self.roll_segment()
            if leader_epoch != self.leader_epochs.latest or self.leader_epochs.dirty:
                self.leader_epoch_file.begin(leader_epoch, first_offset)
            # `batch` is writable: the caller's buffer, or a new one that `validate` has made.
            set_offset_and_leader_epoch(batch, header, first_offset, leader_epoch)  # type: ignore[arg-type]
            position = segment.size
            segment.append(batch, last_offset, max_timestamp)
        except (OSError, CorruptLogError) as error:
            self.go_offline("append", error)
            raise
        self._last_batch_offset = first_offset
        self._last_batch_position = position
        if producer_id >= 0:
            header.base_offset = first_offset
            self.update_producers(header, batch)
        # Set this last: a flush on another thread expects that everything below it is indexed.
        self.log_end_offset = last_offset + 1
        if last_offset + 1 - self.flusher.recovery_point >= config.flush_messages:
            self.flush()
        return AppendInfo(first_offset, last_offset, append_time, self.log_start_offset)

    def append_as_follower(
        self, records: bytes | bytearray | memoryview, *, leader_epoch: int = follower_append.ANY_EPOCH
    ) -> AppendInfo | None:
        """Append the batches of a Fetch response at the offsets that they have; ignore a last one that is cut off.
        Return None if there is no batch to append.

        Ignores a batch whose leader epoch is above `leader_epoch`, that of the Fetch, and all after it. Such a batch
        means that the sender has lost the leadership, and has changed its log while it sent the response (KAFKA-18723).

        Raises CorruptRecordError for a batch that is damaged or whose offset is below the end of the log, after it has
        appended the valid batches before it. Raises OSError if the disk fails.
        """
        with self.handling_disk_errors("append"):
            return follower_append.append(self, memoryview(records), leader_epoch)

    def set_last_batch(self, last: RecordBatchHeader, position: int) -> None:
        """Set the end of the log to the end of this batch, which is at `position` of the active segment."""
        self._last_batch_offset = last.base_offset
        self._last_batch_position = position
        self.log_end_offset = last.next_offset

    def update_producers(self, header: RecordBatchHeader, batch: bytes | bytearray | memoryview) -> None:
        """Update the producer state with a batch of the active segment; `header` has the offset it has in the log."""
        aborted = update(self.producers, header, batch)
        if aborted is not None:
            with self.handling_disk_errors("index an aborted transaction"):
                self.segments.active.transaction_index.append(aborted)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True) -> FileSlice | None:
        """Return consecutive batches of one segment from the one with `offset` on: at most `max_bytes` (the last batch
        may be cut off), and none at or above `limit` (default: the end of the log).

        With `min_one`, the first batch is whole even if it is larger. Returns None at the limit, and if the first batch
        does not fit. Raises OffsetOutOfRangeError outside [log_start_offset, log_end_offset].
        """
        if self.offline_cause is not None:
            raise self.offline_error()
        end = self.log_end_offset
        if limit is None or limit > end:
            limit = end
        if offset >= limit:
            if offset > end:
                raise OffsetOutOfRangeError(f"offset {offset} is above the log's end {end}")
            return None
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is below the log's start {self.log_start_offset}")
        segment = self.segments.active
        try:
            if offset == self._last_batch_offset:
                position = self._last_batch_position
                size = segment.size - position
            else:
                if offset < segment.base_offset:
                    segment = self.segments.containing(offset)
                found = segment.translate_offset(offset)
                while found is None:
                    # Compaction leaves gaps between offsets, also at the end of a segment.
                    if segment is self.segments.active:
                        return None
                    segment = self.segments.after(segment)
                    found = segment.translate_offset(offset)
                position, size, _ = found
            available = (segment.size if limit == end else self.segments.position_in(segment, limit)) - position
        except (OSError, CorruptLogError) as error:
            self.go_offline("read", error)
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

    def available_bytes(self, offset: int, limit: int) -> int:
        """Return how many bytes `read` would return if it had no `max_bytes`: like `read`, count those of one segment.
        Raises as `read` does."""
        found = self.read(offset, _UNBOUNDED, limit=limit)
        return 0 if found is None else found.size

    def segment_base_offset(self, offset: int) -> int:
        """Return the base offset of the segment that has `offset`: the active one for the log end offset and above."""
        return self.segments.containing(offset).base_offset

    def forget_last_batch(self) -> None:
        """Forget the position of the batch that was appended last: it is no longer the last of the active segment."""
        # `append` keeps that position, because consumers that wait at the end fetch the batch next.
        self._last_batch_offset = _NO_OFFSET
        self._last_batch_position = 0

    # --- looking up

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record whose timestamp is at least this one."""
        with self.handling_disk_errors("look up a timestamp"):
            return self.segments.find_timestamp(timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record with the largest timestamp in the segments. The
        record may be below the log start offset, as in Kafka."""
        with self.handling_disk_errors("look up the largest timestamp"):
            return self.segments.find_largest_timestamp()

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is ongoing, or whose marker is at or above the high
        watermark; at least the log start offset; None without such a transaction. The result may be above the high
        watermark. Between two calls the high watermark may only grow, unless the log is truncated."""
        unstable = self.producers.transactions.first_unstable_offset(high_watermark)
        return unstable if unstable is None or unstable > self.log_start_offset else self.log_start_offset

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records or their marker in [start, end), whose records read_committed
        consumers must skip."""
        with self.handling_disk_errors("read aborted transactions"):
            return self.segments.aborted_transactions(start, end)

    def aborted_transactions_of_slice(self, offset: int, found: FileSlice) -> list[AbortedTransaction]:
        """Return the aborted transactions for the slice that `read` has returned for `offset`. Like Kafka, takes the
        end of the slice from the offset index, so that the result may have transactions that begin after the slice."""
        segments = self.segments
        try:
            segment = found.segment
            if segment is segments.active and segment.transaction_index.is_empty:
                return []
            return segments.aborted_transactions(offset, segments.offset_after_slice(found, self.log_end_offset))
        except (OSError, CorruptLogError) as error:
            self.go_offline("read aborted transactions", error)
            raise

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) for OffsetForLeaderEpoch; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- segments

    def roll(self) -> None:
        """Roll to a new segment, unless the active one is empty."""
        with self.handling_disk_errors("roll"):
            if self.segments.active.size:
                self.roll_segment()

    def roll_segment(self) -> LogSegment:
        """Roll to a new active segment at the end of the log, and write a snapshot of the producers."""
        self.snapshots.take(self.producers, self.log_end_offset)
        self.forget_last_batch()
        segment = self.segments.roll_to(self.log_end_offset, self._config)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def delete_old_segments(self, limit: int) -> int:
        """Delete the segments that retention allows, none at or above `limit` (the high watermark); return how many.
        Deletes none while the cleaner works on this log: the broker calls again after that.

        Renames the files to `.deleted` now and removes them after `file.delete.delay.ms`.
        """
        with self.handling_disk_errors("delete old segments"):
            return segment_deletion.delete_old_segments(self, limit)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Serve no record below `offset` any more (DeleteRecords); return whether the log start offset changed. The
        next `delete_old_segments` deletes the segments below it."""
        assert offset <= self.log_end_offset
        if offset <= self.log_start_offset:
            return False
        segment_deletion.advance_log_start_offset(self, offset)
        return True

    def truncate_to(self, offset: int) -> bool:
        """Remove the records at and above `offset`; return whether there were any.

        If `offset` is inside a batch, remove the whole batch and end the log before it. (Kafka removes the batch too
        but ends the log at `offset`, so that a follower never fetches the records in between.)

        After a truncation below the recovery point, the caller writes the checkpoints of the directory before the next
        append (LogManager.truncateTo). Otherwise, after a crash, the old recovery point would cover other records.
        """
        if offset >= self.log_end_offset:
            # A leader that appended nothing has an epoch that begins at the end, and a new leader does not know it. As
            # long as the epoch is in the cache, the new leader answers that the logs diverge (UnifiedLog.truncateTo).
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        with self.handling_disk_errors("truncate"):
            truncation.truncate(self, offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and begin again, empty, at `offset`."""
        with self.handling_disk_errors("truncate"):
            truncation.truncate_fully_and_start_at(self, offset)

    def rebuild_producer_state(self, *, recovered_from: int | None = None, clean_shutdown: bool = False) -> None:
        """Fill the empty `producers` from snapshots and batches; `recovered_from` as in `producer_replay`."""
        rebuild(
            self.producers,
            self.snapshots,
            self.segments,
            self.log_start_offset,
            self.log_end_offset,
            self.env.wall_ms(),
            recovered_from=recovered_from,
            clean_shutdown=clean_shutdown,
        )

    # --- flush and close

    def flush(self) -> None:
        """Force all records that the log has now to the disk; do nothing if the log is closed. Any thread. Raises
        OSError if the disk fails, LogOfflineError if it has failed before."""
        self._flush_to(lambda: self.log_end_offset)

    def flush_sealed(self) -> None:
        """Flush all but the active segment, so that recovery after a crash reads only that one. Any thread."""
        if self.has_unflushed_sealed:
            self._flush_to(lambda: self.segments.active.base_offset)

    @property
    def has_unflushed_sealed(self) -> bool:
        """Whether recovery after a crash would read sealed segments, or trust index files that are not on the disk."""
        segments = self.segments
        if self.offline_cause is not None:
            return False
        return self.flusher.recovery_point < segments.active.base_offset or bool(segments.unsynced)

    def _flush_to(self, end_of: Callable[[], int]) -> None:
        if isinstance(self.offline_cause, LogOfflineError):
            return
        if self.offline_cause is not None:
            # After a failed fsync a second one may succeed although the data are lost.
            raise self.offline_error()
        try:
            self.flusher.flush_to(end_of)
        except OSError as error:
            self.go_offline("flush", error)
            raise

    def seal(self) -> None:
        """Write the index files of all segments; `flush_for_close` forces them to the disk."""
        with self.handling_disk_errors("close"):
            for segment in self.segments:
                self.segments.seal(segment)

    def flush_for_close(self) -> None:
        """Write epochs and a snapshot of the producers, and flush. Any thread, while no other one uses the log."""
        with self.handling_disk_errors("close"):
            if self.log_end_offset:
                # An empty log needs no epochs: no follower asks for an epoch without records.
                self.leader_epoch_file.write_if_dirty()
            self.snapshots.take(self.producers, self.log_end_offset)
            self.flush()

    def close(self) -> None:
        """Write indexes and producers, flush and close the files: a clean shutdown."""
        if self.offline_cause is not None:
            return
        self.seal()
        self.flush_for_close()
        for segment in self.segments:
            segment.release()
        self.offline_cause = LogClosedError(f"{self.name} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether `close` succeeded: the directory is as Kafka leaves it after a clean shutdown."""
        return isinstance(self.offline_cause, LogClosedError)

    def close_without_writing(self) -> None:
        """Close the files without writing, as if the process was killed; the log is offline."""
        for segment in self.segments:
            segment.release()
        self.offline_cause = LogOfflineError(f"{self.name} was closed without writing")

    def rename(self, directory: str) -> None:
        """Rename the directory, to delete it or keep it under another name. Nothing more is appended or read, but the
        broker can still send the slices that it has. Raises OSError, after which the log is unchanged."""
        self.env.disk.rename(self.directory, directory)
        self.directory = directory
        self.close_without_writing()

    # --- disk errors

    @contextmanager
    def handling_disk_errors(self, operation: str) -> Iterator[None]:
        """Take the log offline if the block raises a disk error. (`append` and `read` do the same in place, to save the
        call.)"""
        if self.offline_cause is not None:
            raise self.offline_error()
        try:
            yield
        except (OSError, CorruptLogError) as error:
            self.go_offline(operation, error)
            raise

    def go_offline(self, operation: str, error: Exception) -> None:
        """Take the log offline after a disk error; the first time, report the error and call `on_failure`."""
        if self.offline_cause is not None:
            return
        self.offline_cause = error
        self.env.reporter.error(
            "partition goes offline",
            partition=self.name,
            directory=self.directory,
            operation=operation,
            error=f"{type(error).__name__}: {error}",
        )
        if self.on_failure is not None:
            self.on_failure(error)

    def offline_error(self) -> LogOfflineError:
        return LogOfflineError(f"{self.name} is offline: {self.offline_cause}")

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"
