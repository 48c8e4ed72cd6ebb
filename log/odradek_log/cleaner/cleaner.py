"""Clean one log in one pass (Kafka's Cleaner): build the offset map of the dirty part, then rewrite segment after
segment.

The work comes in slices, so that no slice holds the interpreter for long. Slices that wait for the disk or a codec
belong on another thread; the others compute and belong on the thread of the event loop. Slices read sealed files and
write new ones. Only `replace_segments` and `complete` change the log, on its own thread. Between two slices the broker
checks `is_interrupted`: a truncation, a deletion or a disk error ends the pass, and no data are lost.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from odradek_log.cleaner.batch_filter import (
    BatchFilter,
    DecompressedRecords,
    commits,
    decompress_records,
    last_records,
)
from odradek_log.cleaner.cleaned_segment import CleanedSegment
from odradek_log.cleaner.log_to_clean import CleanableSegment, LogToClean, choose_cleanable, group_segments
from odradek_log.cleaner.offset_map import OffsetMap
from odradek_log.cleaner.segment_reader import read_chunks
from odradek_log.cleaner.segment_replacement import replace_segments
from odradek_log.cleaner.transaction_metadata import CleanedTransactionMetadata
from odradek_log.file_names import CLEANED, INDEX, TIME_INDEX
from odradek_log.log import Log
from odradek_log.log_segment import LogSegment
from odradek_wire.records import record_filter
from odradek_wire.records.batch import (
    Buffer,
    RecordBatchHeader,
    check_crc,
    read_header,
)
from odradek_wire.records.record_codec import records_data

_SMALL_BATCH = 2048


class CleanerConfig(NamedTuple):
    """The broker's settings `log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor` and
    `log.cleaner.io.buffer.size`."""

    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int


class SliceDone(NamedTuple):
    """The bytes that one slice read and wrote."""

    bytes_read: int
    bytes_written: int


class SegmentReplacement(NamedTuple):
    """A new segment for `replace_segments`."""

    old: Sequence[LogSegment]
    new: CleanedSegment


Slice: TypeAlias = SliceDone | SegmentReplacement


def log_to_clean(log: Log, last_stable_offset: int, now_ms: int) -> LogToClean:
    """Return what could be cleaned in a log. Raises OSError or CorruptLogError, after which the log is offline."""
    facts = [
        CleanableSegment(
            segment.base_offset,
            segment.size,
            lambda segment=segment: segment.largest_timestamp[0],  # type: ignore[misc]
            lambda segment=segment: segment.first_timestamp,  # type: ignore[misc]
        )
        for segment in log.segments
    ]
    with log.handling_disk_errors("find dirty segments"):
        return choose_cleanable(
            facts,
            log.config,
            log.cleaner.checkpoint,
            log.log_start_offset,
            log.log_end_offset,
            last_stable_offset,
            now_ms,
        )


class Cleaner:
    """One pass over one log, from its construction to `complete` or `abort`."""

    def __init__(self, log: Log, to_clean: LogToClean, config: CleanerConfig, now_ms: int) -> None:
        assert to_clean.first_dirty_offset < to_clean.first_uncleanable_offset, "nothing is dirty"
        self._log = log
        self._log_config = log.config
        self._directory = log.directory
        self._config = config
        self._now_ms = now_ms
        self._first_dirty_offset = to_clean.first_dirty_offset
        self._end = to_clean.first_uncleanable_offset
        self._segments = list(log.segments)
        self._producers = last_records(log.producers)
        # Includes transactions with records in the cleaned part and their marker after it.
        with log.handling_disk_errors("read aborted transactions"):
            self._aborted = [each for segment in self._segments for each in segment.aborted_transactions()]
        self._interruptions = log.cleaner.interruptions
        self._offsets = OffsetMap(config.dedupe_buffer_bytes, config.load_factor)
        self._target: CleanedSegment | None = None
        self.bytes_read = 0
        """The bytes read to rewrite segments; like Kafka's count, without those read for the offset map."""
        self.bytes_written = 0
        self.records_read = self.records_written = 0
        """The records read and written to rewrite segments."""
        self.slice_us = 100
        """The approximate time of a slice in microseconds; a batch with many records may take several times as long.
        The caller may change it between slices."""
        self.next_slice_blocks = True
        """Whether the next slice waits for the disk or a codec."""
        self.buffer_utilization = 0.0
        """The used share of the dedupe buffer, from 0 to 1."""
        log.cleaner.in_progress = True

    @property
    def is_interrupted(self) -> bool:
        """Whether a truncation or a disk error has ended this pass."""
        return self._log.offline_cause is not None or self._log.cleaner.interruptions != self._interruptions

    @property
    def end_offset(self) -> int:
        """The first dirty offset after the pass. Valid once the offset map is built."""
        return self._offsets.latest_offset + 1

    # --- on the log's thread

    def replace_segments(self, replacement: SegmentReplacement) -> None:
        """Replace segments of the log. Raises OSError, after which the log is offline."""
        self._target = None
        replace_segments(self._log, replacement.old, replacement.new)

    def complete(self) -> None:
        """Set the log's first dirty offset after the last slice."""
        self._log.cleaner.in_progress = False
        self._log.cleaner.checkpoint = self.end_offset

    def abort(self) -> None:
        """End the pass early. The caller then calls `discard`, on any thread."""
        self._log.cleaner.in_progress = False

    # --- on any thread

    def discard(self) -> None:
        """Remove the unfinished segment."""
        target, self._target = self._target, None
        if target is not None:
            target.discard()

    def slices(self) -> Iterator[Slice]:
        """Return an iterator that does the work, one slice for each step, on one thread at a time. Raises OSError, and
        CorruptLogError or CorruptRecordError for a log that cannot be cleaned."""
        disk = self._log.env.disk
        for name in disk.names(self._directory):
            if name.endswith(CLEANED):
                # An earlier pass could not remove this file. At a start it would undo a replacement (`log_loader`).
                disk.remove(f"{self._directory}/{name}")
        yield from self._build_offset_map()
        self.next_slice_blocks = True
        yield SliceDone(0, 0)
        end, self.buffer_utilization = self.end_offset, self._offsets.utilization
        sources = [segment for segment in self._segments[:-1] if segment.base_offset < end]
        transactions = CleanedTransactionMetadata(self._aborted)
        batches = BatchFilter(
            offsets=self._offsets,
            transactions=transactions,
            producers=self._producers,
            end=self._end,
            now_ms=self._now_ms,
            delete_retention_ms=self._log_config.delete_retention_ms,
        )
        sizes = [(segment.base_offset, segment.size, self._index_size(segment)) for segment in sources]
        at = 0
        for count in group_segments(sizes, self._log_config, self._end):
            group = sources[at : at + count]
            at += count
            self._target = target = CleanedSegment(
                self._log.env, self._directory, group[0].base_offset, self._log_config
            )
            for source in group:
                yield from self._rewrite(source, target, batches)
            target.finish(transactions.take_aborted_with_marker())
            yield SegmentReplacement(group, target)
            disk.sync_directory(self._directory)
        self.next_slice_blocks = False
        while self._offsets.free(10 * self.slice_us):
            yield SliceDone(0, 0)

    def _index_size(self, segment: LogSegment) -> int:
        """Return the size of the larger index file; 0 without index files."""
        disk, size = self._log.env.disk, 0
        for suffix in (INDEX, TIME_INDEX):
            try:
                size = max(size, disk.size(segment.path(suffix)))
            except FileNotFoundError:
                continue
        return size

    # --- building the offset map

    def _build_offset_map(self) -> Iterator[Slice]:
        """Build the offset map from the first dirty offset on, until it is full."""
        first, disk = self._first_dirty_offset, self._log.env.disk
        transactions = CleanedTransactionMetadata(each for each in self._aborted if each.last_offset >= first)
        for at, segment in enumerate(self._segments[:-1]):
            next_base = self._segments[at + 1].base_offset
            if next_base <= first:
                continue
            if segment.base_offset >= self._end:
                break
            for chunk in read_chunks(disk, segment, self._config.io_buffer_bytes // 2):
                self.next_slice_blocks = False
                yield SliceDone(0, 0)
                cost = size = 0
                for header in chunk:
                    if header.last_offset >= first:
                        has_room = (
                            (yield from self._add_large_to_map(chunk.data, header, transactions))
                            if self._is_large(header)
                            else self._add_to_map(chunk.data, header, transactions)
                        )
                        if not has_room:
                            return
                    size += header.size_in_bytes
                    cost += _cost(header)
                    if cost >= self.slice_us:
                        yield SliceDone(size, 0)
                        cost = size = 0
                self.next_slice_blocks = True
                yield SliceDone(size, 0)
            # An earlier cleaning removed any offsets up to the next segment.
            self._offsets.latest_offset = next_base - 1

    def _add_to_map(
        self, data: memoryview, header: RecordBatchHeader, transactions: CleanedTransactionMetadata
    ) -> bool:
        """Add a batch to the offset map; return whether there was room for all its keys."""
        if header.is_control:
            transactions.on_control_batch_read(header, commits(data, header))
        elif not transactions.on_batch_read(header):
            check_crc(data, header)
            _, found = decompress_records(data, header)
            if not self._put(header.base_offset, found.keys, found.offset_deltas):
                return False
        self._offsets.latest_offset = header.last_offset
        return True

    def _add_large_to_map(
        self, data: memoryview, header: RecordBatchHeader, transactions: CleanedTransactionMetadata
    ) -> Generator[Slice, None, bool]:
        """Do as `_add_to_map`, for a large batch in slices."""
        if not transactions.on_batch_read(header):
            check_crc(data, header)
            _, found = yield from self._decompress_records(data, header)
            keys, deltas, records_max = found.keys, found.offset_deltas, self.slice_us
            for at in range(0, header.count, records_max):
                if not self._put(header.base_offset, keys[at : at + records_max], deltas[at : at + records_max]):
                    return False
                yield SliceDone(0, 0)
        self._offsets.latest_offset = header.last_offset
        return True

    def _put(self, base_offset: int, keys: Sequence[bytes | None], deltas: Sequence[int]) -> bool:
        """Add records to the offset map; return whether there was room for all of them."""
        first, offsets = self._first_dirty_offset, [base_offset + delta for delta in deltas]
        if None in keys or base_offset < first:
            wanted = [at for at, key in enumerate(keys) if key is not None and offsets[at] >= first]
            keys, offsets = [keys[at] for at in wanted], [offsets[at] for at in wanted]
        if not self._offsets.put(cast("Sequence[bytes]", keys), offsets):
            return False
        if offsets:
            self._offsets.latest_offset = offsets[-1]
        return True

    # --- rewriting

    def _rewrite(self, source: LogSegment, target: CleanedSegment, batches: BatchFilter) -> Iterator[Slice]:
        written = 0
        for chunk in read_chunks(self._log.env.disk, source, self._config.io_buffer_bytes // 2):
            self.next_slice_blocks = False
            yield SliceDone(0, written)
            kept: list[RecordBatchHeader] = []
            parts: list[Buffer] = []
            # The position of the first unchanged batch that is not in `parts` yet.
            copied_to = cost = size = 0
            for header in chunk:
                outcome = yield from self._filter(chunk.data, header, batches)
                if outcome is None:
                    kept.append(header)
                else:
                    if header.position > copied_to:
                        parts.append(chunk.data[copied_to : header.position])
                    copied_to = header.end
                    if outcome:
                        parts.append(outcome)
                        kept.append(read_header(outcome))
                size += header.size_in_bytes
                self.records_read += header.count
                cost += _cost(header)
                if cost >= self.slice_us:
                    self.bytes_read += size
                    yield SliceDone(size, 0)
                    cost = size = 0
            self.bytes_read += size
            self.next_slice_blocks = True
            yield SliceDone(size, 0)
            if chunk.end > copied_to:
                parts.append(chunk.data[copied_to : chunk.end])
            # The same slice reads the next chunk: each change of threads delays requests.
            written = target.append(parts, kept) if parts else 0
            self.bytes_written += written
            self.records_written += sum(header.count for header in kept)
        yield SliceDone(0, written)

    def _filter(
        self, data: memoryview, header: RecordBatchHeader, batches: BatchFilter
    ) -> Generator[Slice, None, Buffer | None]:
        """Filter one batch, a large one in slices."""
        if not self._is_large(header):
            return batches.filter(data, header)
        work = batches.filter_in_slices(
            data, header, (yield from self._decompress_records(data, header)), self.slice_us
        )
        while True:
            try:
                self.next_slice_blocks = next(work)
            except StopIteration as over:
                outcome = cast("Buffer | None", over.value)
                break
            yield SliceDone(0, 0)
        if self.next_slice_blocks:
            self.next_slice_blocks = False
            yield SliceDone(0, 0)
        return outcome

    def _decompress_records(
        self, data: memoryview, header: RecordBatchHeader
    ) -> Generator[Slice, None, DecompressedRecords]:
        """Decompress a large batch in slices."""
        if header.is_compressed:
            self.next_slice_blocks = True
            yield SliceDone(0, 0)
        body, found = records_data(data, header), record_filter.begin_partial()
        self.next_slice_blocks = False
        yield SliceDone(0, 0)
        is_complete = False
        while not is_complete:
            is_complete = record_filter.continue_partial(found, body, header.count, self.slice_us)
            yield SliceDone(0, 0)
        return body, found

    def _is_large(self, header: RecordBatchHeader) -> bool:
        """Return whether a batch is too large for one slice."""
        if header.is_control:
            return False
        return header.count > self.slice_us or (header.is_compressed and header.size_in_bytes > _SMALL_BATCH)


def _cost(header: RecordBatchHeader) -> int:
    """Return the approximate cost of a batch in microseconds."""
    return 6 + header.count + (header.size_in_bytes >> 12)
