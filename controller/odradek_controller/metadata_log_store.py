"""The metadata store in the data directory: Kafka's metadata log, with this node as leader and only voter.

Owns `__cluster_metadata-0` (batches, epoch, `quorum-state`) and `bootstrap.checkpoint` in the directory above it, as
combined mode of Kafka 4.3 writes them: Kafka and Odradek can each open the directory of the other. Leaves the time of
snapshots to `snapshot_writer`, the meaning of records to `replay`, and the files of the log to odradek_log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from odradek_log.append import Rejection
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_log.producer_state_manager import AppendOrigin
from odradek_wire.message import Message
from odradek_wire.messages.abort_transaction_record import AbortTransactionRecord
from odradek_wire.messages.begin_transaction_record import BeginTransactionRecord
from odradek_wire.messages.end_transaction_record import EndTransactionRecord
from odradek_wire.messages.leader_change_message import LeaderChangeMessage
from odradek_wire.records.batch import RecordBatchHeader, iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import ControlRecordType, control_batch, decode_control_record
from odradek_wire.records.record_codec import read_records
from odradek_wire.uuid import ZERO_UUID

from .framing import frame, unframe
from .image import ClusterImage
from .image_records import feature_records
from .levels import Emulation, Levels
from .quorum_state import QUORUM_STATE, QuorumStateFile
from .replay import InvalidMetadataError, replay
from .snapshot_writer import MAX_LOG_BYTES, SNAPSHOT_RECORDS, SnapshotWriter, StartDiskWork
from .snapshots import BOOTSTRAP, SnapshotId, VoterRecords, decode_snapshot, encode_snapshot, find_snapshots
from .store import Appended, QuorumState, Voter

MAX_BATCH_BYTES = 8 << 20
LOG_CONFIG = LogConfig(
    cleanup_policy=("compact",),
    max_message_bytes=MAX_BATCH_BYTES * 2,
    segment_bytes=1 << 30,
    segment_ms=7 * 24 * 3600 * 1000,
)
_READ_BYTES = 4 << 20
_RECORD_OVERHEAD = 16
"""The most bytes that a batch has for a record besides the record's value."""
RunFlush = Callable[[Callable[[], None]], Awaitable[None]]


class MetadataLogStore:
    """The only writer of a metadata log.

    After `append` returns, its records survive a crash of the process; flushed records survive a crash of the machine.
    With `run_flush`, `append` waits for a flush. Otherwise `start_disk_work` starts a flush after an append, without
    waiting for it. With neither, only `close` and each snapshot flush the log.
    """

    def __init__(
        self,
        directory: LogDirectory,
        *,
        node_id: int,
        cluster_id: str,
        initial: Levels = Emulation.UNION.initial,
        start_disk_work: StartDiskWork | None = None,
        run_flush: RunFlush | None = None,
        snapshot_records: int = SNAPSHOT_RECORDS,
        max_log_bytes: int = MAX_LOG_BYTES,
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self._directory = directory
        self._disk = directory.env.disk
        self._wall_ms = directory.env.wall_ms
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._initial = initial
        self._start_disk_work = start_disk_work
        self._run_flush = run_flush
        self._flush_due = False
        self._max_batch_bytes = max_batch_bytes
        self._log: Log | None = None
        self._epoch = 0
        self._data_version = 0
        self._voter_records = VoterRecords()
        self._last_append_ms = -1
        self._snapshots = SnapshotWriter(directory.env, start_disk_work, snapshot_records, max_log_bytes)
        self._image = ClusterImage(cluster_id=cluster_id)

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self) -> ClusterImage:
        """Replay the log, begin a new epoch, and write the bootstrap records to an empty log. Return the image.

        Raises InvalidMetadataError, and changes no file, if the log is damaged or of a later version of Kafka.
        """
        log = self._directory.open_metadata_log(LOG_CONFIG)
        try:
            self._log = log
            last_epoch = self._read_quorum_state()
            image, unfinished = self._load(log)
            self._epoch = max(last_epoch, image.epoch, log.leader_epochs.latest or 0) + 1
            self._begin_epoch()
            if unfinished:
                await self.append([AbortTransactionRecord("The controller was restarted")], image.levels)
            if not image.levels.finalized:
                image = await self._bootstrap(image)
            await self._finish_append()
        except BaseException:
            log.close_without_writing()
            raise
        self._image = image
        return image

    def _load(self, log: Log) -> tuple[ClusterImage, bool]:
        """Replay the last snapshot and the records after it.

        Returns the image, and whether the log ends within a metadata transaction."""
        image = self._image
        start = 0
        snapshots = find_snapshots(self._disk, log.directory)
        if snapshots:
            newest = snapshots[-1]
            data = self._disk.read_file(f"{log.directory}/{newest.file_name}")
            records, self._voter_records = decode_snapshot(data, newest.file_name)
            image = replay(image, records, offset=newest.end_offset - 1, epoch=newest.epoch).image
            start = newest.end_offset
        if log.log_start_offset > start:
            raise InvalidMetadataError(
                f"{log.directory} begins at offset {log.log_start_offset}, and no snapshot has the records from offset "
                f"{start} on: restore the missing .log or .checkpoint files from a backup"
            )
        if start > log.log_end_offset:
            log.truncate_fully_and_start_at(start)
        tail = _Tail()
        for header, batch in _batches(log, start):
            self._read_batch(header, batch, tail)
        self._snapshots.records_since = tail.count
        if tail.count:
            image = replay(image, tail.records, offset=log.log_end_offset - 1, epoch=tail.epoch).image
        return image, tail.transaction is not None

    def _read_batch(self, header: RecordBatchHeader, batch: memoryview, tail: _Tail) -> None:
        tail.epoch = header.partition_leader_epoch
        for record in read_records(batch, header):
            if header.is_control:
                _, message = decode_control_record(record)
                self._voter_records = self._voter_records.updated(message)
            elif record.value is not None:
                tail.add(unframe(record.value))

    def _read_quorum_state(self) -> int:
        path = f"{self._metadata_directory}/{QUORUM_STATE}"
        if not self._disk.exists(path):
            return 0
        try:
            state = QuorumStateFile.decode(self._disk.read_file(path))
        except (ValueError, KeyError) as error:
            raise InvalidMetadataError(f"{path}: {error}") from None
        self._data_version = state.data_version
        self._check_voters(state.voters)
        return state.leader_epoch

    @property
    def _metadata_directory(self) -> str:
        assert self._log is not None
        return self._log.directory

    def _begin_epoch(self) -> None:
        dynamic = self._voter_records.voters
        if dynamic is not None:
            self._data_version = 1
            self._check_voters(tuple(voter.voter_id for voter in dynamic.voters))
        state = QuorumStateFile(self._node_id, self._epoch, self._data_version)
        self._disk.replace_file(f"{self._metadata_directory}/{QUORUM_STATE}", state.encode())
        voters = [LeaderChangeMessage.Voter(self._node_id)]
        message = LeaderChangeMessage(0, self._node_id, voters, voters)
        self._write(control_batch(ControlRecordType.LEADER_CHANGE, message, timestamp=self._wall_ms()))

    def _check_voters(self, voters: tuple[int, ...]) -> None:
        """Refuse a log with other voters: this node must not append to it without their votes."""
        if voters not in ((), (self._node_id,)):
            raise InvalidMetadataError(
                f"{self._metadata_directory} belongs to a quorum of the controllers {', '.join(map(str, voters))}, "
                f"expected only {self._node_id}, this node: use another directory"
            )

    def _voters(self) -> tuple[Voter, ...]:
        dynamic = self._voter_records.voters
        if dynamic is None:
            return (Voter(self._node_id, ZERO_UUID),)
        return tuple(Voter(voter.voter_id, voter.voter_directory_id) for voter in dynamic.voters)

    async def _bootstrap(self, image: ClusterImage) -> ClusterImage:
        """Append the first records of a cluster: those of `bootstrap.checkpoint`, or else the initial levels."""
        path = f"{self._directory.path}/{BOOTSTRAP}"
        if self._disk.exists(path):
            records, _ = decode_snapshot(self._disk.read_file(path), path)
        else:
            records = list(feature_records(self._initial))
            data = encode_snapshot(records, Levels(), epoch=0, now_ms=self._wall_ms(), last_timestamp=0)
            self._disk.replace_file(path, data)
        levels = replay(image, records).image.levels
        appended: list[Message] = list(records)
        if levels.metadata_transactions:
            appended = [BeginTransactionRecord("Bootstrap records"), *records, EndTransactionRecord()]
        offset, epoch = await self.append(appended, levels)
        return replay(image, records, offset=offset, epoch=epoch).image

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        assert self._log is not None
        return self._log.log_end_offset

    async def append(self, records: Sequence[Message], levels: Levels) -> Appended:
        """As `MetadataStore.append`: in one batch, or if that is too large, in a metadata transaction."""
        now_ms = self._wall_ms()
        builder = BatchBuilder()
        size = 0
        for record in records:
            value = frame(record, levels)
            size += len(value) + _RECORD_OVERHEAD
            if size > self._max_batch_bytes:
                self._append_large(records, levels, now_ms)
                return await self._finish_append()
            builder.append(now_ms, None, value)
        self._write(builder.build())
        self._snapshots.records_since += len(records)
        return await self._finish_append()

    def _append_large(self, records: Sequence[Message], levels: Levels, now_ms: int) -> None:
        assert levels.metadata_transactions, "without transactions a change must fit into one batch"
        transaction: list[Message] = [BeginTransactionRecord("Large change"), *records, EndTransactionRecord()]
        builder, size = BatchBuilder(), 0
        for record in transaction:
            value = frame(record, levels)
            if size + len(value) > self._max_batch_bytes // 2 and builder.count:
                self._write(builder.build())
                builder, size = BatchBuilder(), 0
            builder.append(now_ms, None, value)
            size += len(value) + _RECORD_OVERHEAD
        self._write(builder.build())
        self._snapshots.records_since += len(transaction)

    async def _finish_append(self) -> Appended:
        offset = self.next_offset - 1
        if self._run_flush is not None:
            assert self._log is not None, "the store is open"
            await self._run_flush(self._log.flush)
        return Appended(offset, self._epoch)

    def _write(self, batch: bytearray) -> None:
        log = self._log
        assert log is not None, "the store is not open"
        appended = log.append(batch, self._epoch, origin=AppendOrigin.RAFT_LEADER)
        assert not isinstance(appended, Rejection), f"the log refused a batch of the controller: {appended}"
        self._last_append_ms = self._wall_ms()
        if self._start_disk_work is not None and self._run_flush is None and not self._flush_due:
            self._flush_due = True
            self._start_disk_work(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._log is not None and not self._log.is_closed:
            self._log.flush()

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def applied(self, image: ClusterImage) -> None:
        self._image = image
        assert self._log is not None, "the store is not open"
        self._snapshots.applied(image, self._log, self._voter_records, max(self._last_append_ms, 0))

    def write_snapshot(self) -> SnapshotId:
        """Write a snapshot of the last applied image."""
        assert self._log is not None, "the store is not open"
        return self._snapshots.write_now(self._image, self._log, self._voter_records, max(self._last_append_ms, 0))

    # -- the quorum, and closing --------------------------------------------------------------------------------------

    def quorum(self) -> QuorumState:
        end = self.next_offset
        return QuorumState(self._node_id, self._epoch, end, end, self._voters(), self._wall_ms())

    async def close(self) -> None:
        """Close the log. A disk error is not raised: the next start recovers the log."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(OSError, CorruptLogError, LogOfflineError):  # reported by the log
                log.close()
            if not log.is_closed:
                log.close_without_writing()

    def close_without_writing(self) -> None:
        """Close the files without writing, as if the process had crashed."""
        log, self._log = self._log, None
        if log is not None:
            log.close_without_writing()


class _Tail:
    """The records after the last snapshot, without those of aborted and incomplete metadata transactions."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.transaction: list[Message] | None = None
        """The records of the metadata transaction in progress."""
        self.count = 0
        """The number of all records after the snapshot."""
        self.epoch = 0

    def add(self, record: Message) -> None:
        self.count += 1
        if isinstance(record, BeginTransactionRecord):
            self.transaction = []
        elif isinstance(record, EndTransactionRecord):
            self.records += self.transaction or ()
            self.transaction = None
        elif isinstance(record, AbortTransactionRecord):
            self.transaction = None
        elif self.transaction is not None:
            self.transaction.append(record)
        else:
            self.records.append(record)


def _batches(log: Log, offset: int) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
    """Return every batch from the offset on: its header, and the buffer that contains it."""
    while (file_slice := log.read(offset, _READ_BYTES)) is not None:
        data = memoryview(file_slice.tobytes())
        before = offset
        for header in iterate(data, allow_partial=True):
            if header.next_offset > offset:
                yield header, data
                offset = header.next_offset
        assert offset > before, "a read gives at least one whole batch"
