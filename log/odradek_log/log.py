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
    """A partition's records on disk. `LogDirectory` makes and opens them."""

    __slots__ = (
        "_config",
        "_last_base",
        "_last_position",
        "cleaner",
        "directory",
        "env",
        "failure",
        "flusher",
        "leader_epoch_file",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "name",
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
        self.failure: Exception | None = None
        """Why this log is offline."""
        self.on_failure: Callable[[Exception], object] | None = None
        """Told once that the disk took this log offline, on the thread that met the trouble."""
        self.on_roll: Callable[[Log], object] | None = None
        """Told that there is one more sealed segment, which nothing but `flush_sealed` forces to the disk soon."""
        self.segments = LogSegments(env, directory, loaded.segments)
        self.segments.active.activate(config)
        self.snapshots = loaded.snapshots
        self.cleaner = CleanerState()
        self.flusher = LogFlusher(self.segments, self.leader_epoch_file, self.snapshots, recovery_point, env.wall_ms)
        self.forget_last_batch()

    # --- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """Other settings, from the next append on."""
        self._config = config
        self.segments.active.activate(config)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def first_base_offset(self) -> int:
        """Where the oldest segment begins."""
        return self.segments.first.base_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is known to be on the disk."""
        return self.flusher.recovery_point

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give an id to a directory that has none, as one written by an old release."""
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
        """Append as the leader. `records` is writable and gets its offsets in place. A batch that begins a transaction
        needs `guard`: what `Producers.begin_verification` gave, and the coordinator confirmed.

        By default a batch is judged by its header where the topic's settings allow that; `strict` looks at every
        record, as Kafka does. Raises `OSError` when the disk fails; the log is offline then, the records not in it.
        """
        if self.failure is not None:
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
            # Either the caller's writable buffer or a new one.
            set_offset_and_leader_epoch(batch, header, first_offset, leader_epoch)  # type: ignore[arg-type]
            position = segment.size
            segment.append(batch, last_offset, max_timestamp)
        except (OSError, CorruptLogError) as error:
            self.go_offline("append", error)
            raise
        self._last_base = first_offset
        self._last_position = position
        if producer_id >= 0:
            header.base_offset = first_offset
            self.update_producers(header, batch)
        # Last, for a flush on another thread: what stands below is indexed.
        self.log_end_offset = last_offset + 1
        if last_offset + 1 - self.flusher.recovery_point >= config.flush_messages:
            self.flush()
        return AppendInfo(first_offset, last_offset, append_time, self.log_start_offset)

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo | None:
        """Append what the partition's leader answered: whole batches with their offsets; a last one that was cut off is
        left out. None when there is no whole batch.

        Raises `CorruptRecordError` for a batch that is damaged or does not follow (the leader's fault; the sound ones
        before it are in the log), `OSError` when the disk fails.
        """
        with self.handling_disk_errors("append"):
            return follower_append.append(self, memoryview(records))

    def set_last_batch(self, last: RecordBatchHeader, position: int) -> None:
        """The log ends with this batch now, which stands at `position` of the active segment."""
        self._last_base = last.base_offset
        self._last_position = position
        self.log_end_offset = last.next_offset

    def update_producers(self, header: RecordBatchHeader, batch: bytes | bytearray | memoryview) -> None:
        """A producer's batch was appended to the active segment; `header` has its offset there."""
        aborted = update(self.producers, header, batch)
        if aborted is not None:
            with self.handling_disk_errors("index an aborted transaction"):
                self.segments.active.transaction_index.append(aborted)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True) -> FileSlice | None:
        """Consecutive batches of one segment, beginning with the one that holds `offset`, at most `max_bytes` of them
        (the last may be cut off there), none at or above `limit` (default: the log's end).

        `min_one`: the first batch comes whole even if it is larger. None when there is nothing: at the limit, or when
        the first batch does not fit. `OffsetOutOfRangeError` outside [log_start_offset, log_end_offset].
        """
        if self.failure is not None:
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
            if offset == self._last_base:
                position = self._last_position
                size = segment.size - position
            else:
                if offset < segment.base_offset:
                    segment = self.segments.containing(offset)
                found = segment.translate_offset(offset)
                while found is None:
                    # Compaction leaves gaps, also at a segment's end.
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
        """Return how many bytes `read` finds between `offset` and `limit` if nothing else bounds it. They are in one
        segment. Raises as `read` does."""
        found = self.read(offset, _UNBOUNDED, limit=limit)
        return 0 if found is None else found.size

    def segment_base_offset(self, offset: int) -> int:
        """Return the base offset of the segment that holds `offset`; the active one's from the log's end on."""
        return self.segments.containing(offset).base_offset

    def forget_last_batch(self) -> None:
        """The batch that was appended last is no longer the active segment's last one."""
        # Where that batch stands is kept, because consumers that wait at the end ask for it next.
        self._last_base = _NO_OFFSET
        self._last_position = 0

    # --- looking up

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record whose timestamp is not below the wanted one."""
        with self.handling_disk_errors("look up a timestamp"):
            return self.segments.find_timestamp(timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that has the log's largest timestamp."""
        with self.handling_disk_errors("look up the largest timestamp"):
            return self.segments.find_largest_timestamp(self.log_start_offset)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker stands at or above the high watermark; the
        log's start if that is deleted; None without such a transaction. It may lie above the high watermark, which
        only grows from call to call, unless the log is truncated."""
        unstable = self.producers.transactions.first_unstable_offset(high_watermark)
        return unstable if unstable is None or unstable > self.log_start_offset else self.log_start_offset

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those that have records or their marker in [start, end): what a reader of committed records must skip."""
        with self.handling_disk_errors("read aborted transactions"):
            return self.segments.aborted(start, end)

    def aborted_in(self, offset: int, found: FileSlice) -> list[AbortedTransaction]:
        """The same for what `read` has just found at `offset`. As in Kafka it may name some that begin behind that, up
        to the next batch in the index: it says without a look at the batches where such a piece ends."""
        segments = self.segments
        try:
            segment = found.segment
            if segment is segments.active and segment.transaction_index.is_empty:
                return []
            return segments.aborted(offset, segments.end_of(found, self.log_end_offset))
        except (OSError, CorruptLogError) as error:
            self.go_offline("read aborted transactions", error)
            raise

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) when it cannot be told."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- segments come and go

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        with self.handling_disk_errors("roll"):
            if self.segments.active.size:
                self.roll_segment()

    def roll_segment(self) -> LogSegment:
        """A new active segment at the log's end, with what is known of the producers before it."""
        self.snapshots.take(self.producers, self.log_end_offset)
        self.forget_last_batch()
        segment = self.segments.begin(self.log_end_offset, self._config)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def delete_old_segments(self, limit: int) -> int:
        """Give up what retention allows, nothing at or above `limit` (the high watermark); returns how many segments:
        none while the log is being cleaned, whose owner asks again after that.

        The files are renamed to `.deleted` now and removed after `file.delete.delay.ms`.
        """
        with self.handling_disk_errors("delete old segments"):
            return segment_deletion.delete_old_segments(self, limit)

    def advance_log_start_offset(self, offset: int) -> bool:
        """DeleteRecords: nothing below `offset` is served any more; its segments go with the next retention."""
        assert offset <= self.log_end_offset
        if offset <= self.log_start_offset:
            return False
        segment_deletion.advance_log_start_offset(self, offset)
        return True

    def truncate_to(self, offset: int) -> bool:
        """Forget the records at and above `offset`; True when there were any.

        Inside a batch, the whole batch goes and the log ends before it. (Kafka, too, drops the batch but lets the log
        end at `offset`, so that a follower would never ask for the records in between.)

        Who goes below the recovery point writes the directory's checkpoints before anything is appended (Kafka's
        LogManager.truncateTo): after a crash the old one would vouch for other records.
        """
        if offset >= self.log_end_offset:
            # Who was leader and wrote nothing has an epoch that begins at the end, of which a new leader knows nothing
            # (Kafka's UnifiedLog.truncateTo); as long as it stands there the leader finds that the logs part.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        with self.handling_disk_errors("truncate"):
            truncation.truncate(self, offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and begin again, empty, at `offset`."""
        with self.handling_disk_errors("truncate"):
            truncation.truncate_fully_and_start_at(self, offset)

    def rebuild_producer_state(self, *, recovered_from: int | None = None, clean_shutdown: bool = False) -> None:
        """What the files say of the producers, into the empty `producers`; `unsure_from` as in `producer_replay`."""
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

    # --- the end

    def flush(self) -> None:
        """Everything that stands in the log now is on the disk when this returns (unless the log was closed or given up
        before, and is nobody's any more). Any thread. Raises `OSError`, and `LogOfflineError` ever after."""
        self._flush_to(lambda: self.log_end_offset)

    def flush_sealed(self) -> None:
        """Flush all but the active segment, so that a start after a crash reads no more than that one. Any thread."""
        if self.has_unflushed_sealed:
            self._flush_to(lambda: self.segments.active.base_offset)

    @property
    def has_unflushed_sealed(self) -> bool:
        """Whether a start after a crash would read sealed segments, or believe in indexes that are not on the disk."""
        segments = self.segments
        if self.failure is not None:
            return False
        return self.flusher.recovery_point < segments.active.base_offset or bool(segments.unsynced)

    def _flush_to(self, end_of: Callable[[], int]) -> None:
        if isinstance(self.failure, LogOfflineError):
            return
        if self.failure is not None:
            # A second fsync after one that failed may succeed although the data is lost.
            raise self.offline_error()
        try:
            self.flusher.flush_to(end_of)
        except OSError as error:
            self.go_offline("flush", error)
            raise

    def seal(self) -> None:
        """Write the index files of all segments, for `flush_for_close` to force them to the disk."""
        with self.handling_disk_errors("close"):
            for segment in self.segments:
                self.segments.seal(segment)

    def flush_for_close(self) -> None:
        """All that a close forces to the disk. Any thread, while no other uses the log."""
        with self.handling_disk_errors("close"):
            if self.log_end_offset:
                # An epoch without a record is nothing that anybody could ask for.
                self.leader_epoch_file.write_if_dirty()
            self.snapshots.take(self.producers, self.log_end_offset)
            self.flush()

    def close(self) -> None:
        """Write indexes and producers, flush, give descriptors back: the directory is cleanly shut down."""
        if self.failure is not None:
            return
        self.seal()
        self.flush_for_close()
        for segment in self.segments:
            segment.release()
        self.failure = LogClosedError(f"{self.name} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether `close` succeeded, so that the directory is as Kafka leaves it after a clean shutdown."""
        return isinstance(self.failure, LogClosedError)

    def abandon(self) -> None:
        """Give the descriptors back and write nothing."""
        for segment in self.segments:
            segment.release()
        self.failure = LogOfflineError(f"{self.name} was abandoned")

    def rename(self, directory: str) -> None:
        """Move to another name, to be deleted or set aside: nothing more is appended or read, but answers that hold a
        slice can still be sent. Raises `OSError`; the log is as it was then."""
        self.env.disk.rename(self.directory, directory)
        self.directory = directory
        self.abandon()

    # --- trouble

    @contextmanager
    def handling_disk_errors(self, what: str) -> Iterator[None]:
        """The boundary at which trouble with the disk takes the log offline. (The hot paths spell it out.)"""
        if self.failure is not None:
            raise self.offline_error()
        try:
            yield
        except (OSError, CorruptLogError) as error:
            self.go_offline(what, error)
            raise

    def go_offline(self, what: str, error: Exception) -> None:
        """Nothing is served any more; said once, however many pieces of work meet the same trouble."""
        if self.failure is not None:
            return
        self.failure = error
        self.env.reporter.error(
            "partition goes offline",
            partition=self.name,
            directory=self.directory,
            could_not=what,
            error=f"{type(error).__name__}: {error}",
        )
        if self.on_failure is not None:
            self.on_failure(error)

    def offline_error(self) -> LogOfflineError:
        return LogOfflineError(f"{self.name} is offline: {self.failure}")

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"
