"""One segment of a log: its log file and the indexes beside it (LogSegment).

Owns the bytes of the files, the positions of batches in them, and when the segment is full. Leaves to the log what is
appended and which segments exist. Offsets are absolute; `base_offset` is in the names of the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from odradek_log import file_batches
from odradek_log.disk import APPEND, CREATE, append_to_file, complete_file, write_all
from odradek_log.file_names import DELETED, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, segment_name
from odradek_log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError
from odradek_log.open_files import OpenFile
from odradek_log.transaction_index import AbortedTransaction, TransactionIndex
from odradek_wire.records.batch import RecordBatchHeader, read_header
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import CorruptRecordError

_MAX_RELATIVE = 0x7FFF_FFFF
_ONE_BATCH_GAP = 8192
_NO_OFFSETS = OffsetIndex()
_NO_TIMES = TimeIndex()
_WRITE_INDEX_ENTRIES = 64
"""The number of new entries that are written to the index files of the active segment at a time. A write for each entry
costs as much as the append; the cost of one for 64 entries cannot be measured."""


class FileSlice:
    """Consecutive bytes of a log file, for `sendfile` or to read. Keeps the file open after its eviction or
    deletion."""

    __slots__ = ("_file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._file = file
        self.position = position
        self.size = size

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def segment(self) -> LogSegment:
        """The segment of the file."""
        holder = self._file.holder
        assert isinstance(holder, LogSegment)
        return holder

    def __len__(self) -> int:
        return self.size

    def tobytes(self) -> bytes:
        """Read and return the bytes."""
        return self._file.read(self.size, self.position)

    def __repr__(self) -> str:
        return f"FileSlice(fd={self.fd}, position={self.position}, size={self.size})"


class LogSegment:
    """A log file and its indexes, opened at first use."""

    __slots__ = (
        "_created_ms",
        "_env",
        "_first_timestamp",
        "_index_bytes_written",
        "_index_interval",
        "_largest_timestamp",
        "_offset_index",
        "_reserved",
        "_since_index",
        "_time_index",
        "_transaction_index",
        "_writes_index_entries",
        "base_offset",
        "directory",
        "file",
        "jitter_ms",
        "sealed",
        "size",
    )

    def __init__(
        self, env: LogEnvironment, directory: str, base_offset: int, *, size: int, created_ms: int, index_interval: int
    ) -> None:
        self._env = env
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.file: OpenFile | None = None
        self.sealed = False
        """Whether the index files have an entry for everything in the log file."""
        self.jitter_ms = 0
        self._index_interval = index_interval
        self._writes_index_entries = False
        # How many bytes of each index are in its file; None if the files may have other content.
        self._index_bytes_written: tuple[int, int] | None = None
        self._reserved = 0
        self._created_ms = created_ms
        self._first_timestamp: int | None = None
        self._since_index = 0
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        # (max timestamp, last offset of the first batch that has it), once known.
        self._largest_timestamp: tuple[int, int] | None = None
        self._transaction_index: TransactionIndex | None = None

    @classmethod
    def create(cls, env: LogEnvironment, directory: str, base_offset: int, config: LogConfig) -> LogSegment:
        """Create a segment with an empty log file and empty index files."""
        segment = cls(
            env, directory, base_offset, size=0, created_ms=env.wall_ms(), index_interval=config.index_interval_bytes
        )
        segment.create_file()
        return segment

    @classmethod
    def without_files(cls, env: LogEnvironment, directory: str, config: LogConfig) -> LogSegment:
        """Return the first segment of a new partition, whose files the first append creates, because creating files is
        most of the cost of creating a partition. (Kafka creates missing files at start.)"""
        segment = cls(env, directory, 0, size=0, created_ms=env.wall_ms(), index_interval=config.index_interval_bytes)
        segment.sealed = True
        return segment

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{segment_name(self.base_offset, suffix)}"

    def create_file(self) -> None:
        """Create the log file, if it is missing, and the index files."""
        disk = self._env.disk
        disk.close(disk.open(self.path(LOG), CREATE))
        self.write_new_index_entries()

    def open(self) -> OpenFile:
        """Return the log file; open it if necessary."""
        file = self.file
        if file is None:
            file = self._env.open_files.open(self.path(LOG), APPEND if self.size else CREATE, self)
            if not self.size:
                if self._reserved:
                    self._env.disk.reserve(file.fd, self._reserved)
                if self._writes_index_entries and self._index_bytes_written is None:
                    self.write_new_index_entries()
        file.used = True
        return file

    # --- appending

    def activate(self, config: LogConfig) -> None:
        """Make this the active segment with these settings; called again when they change."""
        self._index_interval = config.index_interval_bytes
        self._writes_index_entries = True
        if config.preallocate:
            self._reserved = config.segment_bytes
        elif not self.size:
            self._reserved = 0
        if config.segment_jitter_ms:
            bound = min(config.segment_jitter_ms, config.segment_ms)
            self.jitter_ms = self._env.random_below(bound) if bound > 0 else 0

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, config: LogConfig) -> bool:
        """Return whether the log must roll before it appends this batch (LogSegment.shouldRoll)."""
        if self.size > config.segment_bytes - size:
            return True
        if last_offset - self.base_offset > _MAX_RELATIVE:
            return True
        if self.size and self._open_for_ms(max_timestamp) > config.roll_ms - self.jitter_ms:
            return True
        entries = self._offset_index
        if entries is not None:
            times = self._time_index
            return len(entries) >= config.segment_index_bytes // OFFSET_ENTRY or (
                # As in Kafka, the last entry is reserved for the end of the segment.
                times is not None and len(times) >= config.segment_index_bytes // TIME_ENTRY - 1
            )
        return False

    def _open_for_ms(self, max_timestamp: int) -> int:
        """Return for how long the segment has been open: by the timestamps of its records, or by the clock without
        them."""
        first = self.first_timestamp
        if first >= 0 and max_timestamp >= 0:
            return max_timestamp - first
        return self._env.wall_ms() - self._created_ms

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 in an empty segment."""
        first = self._first_timestamp
        if first is None:
            header = next(file_batches.batch_headers(self.open(), 0, self.size), None)
            first = self._first_timestamp = -1 if header is None else header.max_timestamp
        return first

    def append(self, data: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int) -> None:
        """Append one batch to the file. Raises OSError, after which the file is as long as before."""
        position = self.size
        self._write(data)
        self.update_indexes(position, len(data), last_offset, max_timestamp)

    def append_batches(self, data: bytes | bytearray | memoryview, headers: list[RecordBatchHeader]) -> None:
        """Append several batches in one write; the headers have their positions relative to the first."""
        start = self.size - headers[0].position
        self._write(data)
        for header in headers:
            self.update_indexes(start + header.position, header.size_in_bytes, header.last_offset, header.max_timestamp)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        if self._time_index is None:
            self._load_indexes()
        file = self.file
        if file is None:
            file = self.open()
        file.used = True
        size = len(data)
        try:
            written = self._env.disk.write(file.fd, data)
            if written != size:
                write_all(self._env.disk, file.fd, memoryview(data)[written:])
        except OSError:
            # Remove the part that was written: the next batch must not follow half of this one.
            self._env.disk.truncate(file.fd, self.size)
            raise
        self.size += size
        self.sealed = False

    def update_indexes(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Note the largest timestamp, and add an index entry if more than `index.interval.bytes` were written since the
        last one (LogSegment.append)."""
        largest = self._largest_timestamp
        if largest is None or max_timestamp > largest[0]:
            self._largest_timestamp = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._since_index > self._index_interval:
            self._index(position, last_offset)
            self._since_index = size
        else:
            self._since_index += size

    def _index(self, position: int, last_offset: int) -> None:
        assert self._offset_index is not None
        assert self._time_index is not None
        assert self._largest_timestamp is not None
        self._offset_index.append(last_offset - self.base_offset, position)
        self._time_index.maybe_append(self._largest_timestamp[0], self._largest_timestamp[1] - self.base_offset)
        if self._writes_index_entries and not len(self._offset_index.offsets) % _WRITE_INDEX_ENTRIES:
            self.write_new_index_entries()

    # --- indexes

    def _load_indexes(self) -> None:
        """Load both indexes from their files, or rebuild them if a file is missing or damaged."""
        if self.size == 0:
            self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
            return
        offsets = times = None
        try:
            offsets = OffsetIndex.from_bytes(self._env.disk.read_file(self.path(INDEX)))
            times = TimeIndex.from_bytes(self._env.disk.read_file(self.path(TIME_INDEX)))
        except FileNotFoundError:
            pass
        if offsets is None or times is None or (offsets and offsets.positions[-1] >= self.size):
            self._env.reporter.warning("rebuilding missing or damaged indexes", file=self.path(LOG))
            self.rebuild_indexes()
            return
        self._offset_index, self._time_index = offsets, times
        self._env.loaded_indexes.add(self, len(offsets) * OFFSET_ENTRY + len(times) * TIME_ENTRY)
        if self._largest_timestamp is None and times:
            timestamp, relative = times.last
            self._largest_timestamp = (timestamp, self.base_offset + relative)

    def reset_indexes(self) -> None:
        """Empty the indexes; the caller then passes every batch to `update_indexes`."""
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._largest_timestamp = None
        self._first_timestamp = None
        self._since_index = 0
        self._index_bytes_written = None
        self.sealed = False

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the headers in the log file."""
        self.reset_indexes()
        for header in file_batches.batch_headers(self.open(), 0, self.size):
            self.update_indexes(header.position, header.size_in_bytes, header.last_offset, header.max_timestamp)

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def unload_indexes(self) -> None:
        """Free the memory of the indexes if their files are complete; the next use loads them again."""
        if self.sealed:
            self._offset_index = self._time_index = None
            if self._transaction_index is not None:
                self._transaction_index.unload()

    def write_new_index_entries(self) -> None:
        """Write new entries of the active segment to its index files, only for Kafka's tools. They accept files that
        lack the last entries; instead of a missing file they create an empty one, and may fail (AbstractIndex).

        Never raises: recovery does not read these files, and `seal` completes them.
        """
        assert not self.size or self._time_index is not None, "the indexes of a segment with records are loaded"
        offsets, times = self._offset_index or _NO_OFFSETS, self._time_index or _NO_TIMES
        sizes = len(offsets) * OFFSET_ENTRY, len(times) * TIME_ENTRY
        written, self._index_bytes_written = self._index_bytes_written, None
        disk = self._env.disk
        with suppress(OSError):
            if written is None:
                complete_file(disk, self.path(INDEX), offsets.to_bytes())
                complete_file(disk, self.path(TIME_INDEX), times.to_bytes())
            else:
                append_to_file(disk, self.path(INDEX), offsets.to_bytes(written[0]))
                append_to_file(disk, self.path(TIME_INDEX), times.to_bytes(written[1]))
            self._index_bytes_written = sizes

    def seal(self) -> None:
        """Complete the index files, with an entry for the largest timestamp, as Kafka does at a roll and at close."""
        if self.sealed:
            return
        if self._reserved:
            self._env.disk.truncate(self.open().fd, self.size)
        for suffix, content in self.index_files():
            complete_file(self._env.disk, self.path(suffix), content)
        self.mark_sealed()

    def index_files(self) -> list[tuple[str, bytes]]:
        """Return the content of the index files of a complete segment, by suffix."""
        offsets, times = self.offset_index, self.time_index
        if self._largest_timestamp is not None:
            times.maybe_append(self._largest_timestamp[0], self._largest_timestamp[1] - self.base_offset)
        return [(INDEX, offsets.to_bytes()), (TIME_INDEX, times.to_bytes())]

    def mark_sealed(self) -> None:
        """Note that the index files are complete, so that the indexes may be unloaded."""
        self.sealed = True
        self._writes_index_entries = False
        self._index_bytes_written = None
        if self.size:
            in_memory = len(self.offset_index) * OFFSET_ENTRY + len(self.time_index) * TIME_ENTRY
            self._env.loaded_indexes.add(self, in_memory)

    # --- looking up

    def translate_offset(self, offset: int) -> tuple[int, int, int] | None:
        """Return (position, size, base offset) of the batch with `offset`, or of the first one after it; None without
        one."""
        index = self._offset_index
        if index is None:
            index = self.offset_index
        file = self.file
        if file is None:
            file = self.open()
        below, above = index.around(offset - self.base_offset)
        if above - below > _ONE_BATCH_GAP:
            # A large batch probably fills the gap, so that `offset` is in the batch at `above`: try that one first.
            position, size, base_offset = file_batches.batch_at(file, above, self.size)
            if base_offset <= offset:
                return position, size, base_offset
        return file_batches.find_batch(file, below, self.size, offset)

    def headers_from(self, offset: int) -> Iterator[RecordBatchHeader]:
        """Yield the headers of the batches from the one with `offset` on; positions are those in the file."""
        found = self.translate_offset(offset)
        if found is not None:
            yield from file_batches.batch_headers(self.open(), found[0], self.size)

    def next_offset(self) -> int:
        """Return the offset after the last record. Raises CorruptLogError if the last batch is cut off."""
        if not self.size:
            return self.base_offset
        start = self.offset_index.positions[-1] if len(self.offset_index) else 0
        header = None
        for header in file_batches.batch_headers(self.open(), start, self.size):
            end = header.position + header.size_in_bytes
        assert header is not None
        if end != self.size:
            raise CorruptLogError(f"{self.path(LOG)}: the batch at position {header.position} ends beyond the file")
        return header.next_offset

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of its batch) from the time index; (-1, base offset) in an empty segment."""
        if self._largest_timestamp is None and self.size:
            self._load_indexes()
        if self._largest_timestamp is None:
            if not self.size:
                return -1, self.base_offset
            # The index has no entry, because the segment was never sealed.
            self.rebuild_indexes()
            assert self._largest_timestamp is not None
        return self._largest_timestamp

    def find_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record from `start_offset` on with at least this
        timestamp."""
        if self.largest_timestamp[0] < timestamp:
            return None
        from_offset = max(start_offset - self.base_offset, self.time_index.lookup(timestamp))
        file = self.open()
        for header in file_batches.batch_headers(file, self.offset_index.lookup(from_offset), self.size):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            batch = file.read(header.size_in_bytes, header.position)
            try:
                for record in read_records(batch, read_header(batch)):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.offset, record.timestamp, header.partition_leader_epoch
            except CorruptRecordError:
                # Malformed records with a right CRC, which only strict validation rejects.
                return max(header.base_offset, start_offset), header.max_timestamp, header.partition_leader_epoch
        return None

    def retention_timestamp(self) -> int:
        """Return the timestamp for `retention.ms`: the largest one, or the modification time of the file without
        one."""
        largest = self.largest_timestamp[0]
        return largest if largest >= 0 else self._env.disk.modified_ms(self.path(LOG))

    # --- aborted transactions

    @property
    def transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers are in this segment; loaded at first use."""
        index = self._transaction_index
        if index is None:
            index = self._transaction_index = TransactionIndex(self._env.disk, self, self._env.loaded_indexes)
        return index

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers are in this segment, by the offset of the marker."""
        return self.transaction_index.entries()

    # --- truncation, flush, deletion

    def truncate(self, position: int, offset: int) -> None:
        """Truncate the file at `position`, where the batch with `offset` begins."""
        offsets, times = self.offset_index, self.time_index
        self._env.disk.truncate(self.open().fd, position)
        self.size = position
        offsets.truncate(offset - self.base_offset)
        times.truncate(offset - self.base_offset)
        self.transaction_index.replace(self.transaction_index.before(offset))
        self._since_index = 0
        self._largest_timestamp = None
        self.sealed = False
        self._index_bytes_written = None
        self.write_new_index_entries()
        if position == 0:
            self._first_timestamp = None
            self._created_ms = self._env.wall_ms()
            return
        # The largest timestamp may have been in a removed batch: find that of the remaining ones.
        timestamp, relative = times.last
        if times:
            self._largest_timestamp = (timestamp, self.base_offset + relative)
        for header in file_batches.batch_headers(self.open(), offsets.lookup(relative), position):
            if self._largest_timestamp is None or header.max_timestamp > self._largest_timestamp[0]:
                self._largest_timestamp = (header.max_timestamp, header.last_offset)

    def flush(self) -> None:
        """Force the log file and the `.txnindex` to the disk. Any thread: does not use `OpenFiles`."""
        disk = self._env.disk
        file = self.file
        if file is not None:
            disk.sync(file.fd)
        else:
            disk.sync_file(self.path(LOG))
        if self._transaction_index is not None:
            self._transaction_index.sync()

    def sync_indexes(self) -> None:
        """Force the index files of a sealed segment to the disk. Any thread."""
        disk, offsets = self._env.disk, self._offset_index
        if offsets is None or len(offsets):  # an empty file needs no sync
            disk.sync_file(self.path(INDEX))
        disk.sync_file(self.path(TIME_INDEX))

    def release(self) -> None:
        """Close the log file."""
        self._env.open_files.release(self)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; return their new names. Readers keep their open file."""
        disk = self._env.disk
        self.release()
        self._offset_index = self._time_index = None
        self._index_bytes_written = None
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            try:
                disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED)
        return renamed
