"""One pass over one log: what is dirty is indexed, then everything up to there is written anew, segment by segment.

Owns the order of the work, and what of it may be done where. The work itself comes in slices, so that whoever shares
the interpreter need not wait for long. Slices that wait, for the disk or a codec, belong on another thread; the others
hold the interpreter, wherever they run, and are best done where they need not fight for it. They touch sealed files and
their own only. What changes the log (`swap`, `finish`) is done on the log's thread. Between two slices the owner asks
`is_interrupted`: a truncation, a deletion or a failing disk ends the pass, and nothing is lost but work.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from odradek_log.cleaner.batch_filter import (
    BatchFilter,
    DecompressedRecords,
    decompress_records,
    last_records,
    marker_of,
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
    """Of the broker: `log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`,
    `log.cleaner.io.buffer.size`."""

    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int


class SliceDone(NamedTuple):
    """A slice of work is done: so many bytes were read, and written."""

    bytes_read: int
    bytes_written: int


class SegmentReplacement(NamedTuple):
    """A segment is ready to take the place of others: the owner calls `swap`."""

    old: Sequence[LogSegment]
    new: CleanedSegment


Slice: TypeAlias = SliceDone | SegmentReplacement


def log_to_clean(log: Log, last_stable_offset: int, now_ms: int) -> LogToClean:
    """What could be cleaned. Raises what a failing disk raises."""
    facts = [
        CleanableSegment(
            segment.base_offset,
            segment.size,
            lambda segment=segment: segment.largest_timestamp[0],  # type: ignore[misc]
            lambda segment=segment: segment.first_timestamp,  # type: ignore[misc]
        )
        for segment in log.segments
    ]
    with log.handling_disk_errors("look for what can be cleaned"):
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
    """From its construction to `finish` or `give_up` the log is being cleaned."""

    def __init__(self, log: Log, to_clean: LogToClean, limits: CleanerConfig, now_ms: int) -> None:
        assert to_clean.first_dirty_offset < to_clean.first_uncleanable_offset, "nothing is dirty"
        self._log = log
        self._config = log.config
        self._directory = log.directory
        self._limits = limits
        self._now_ms = now_ms
        self._first_dirty_offset = to_clean.first_dirty_offset
        self._end = to_clean.first_uncleanable_offset
        self._segments = list(log.segments)
        self._producers = last_records(log.producers)
        # Also of markers behind what is cleaned: of transactions with records in it.
        with log.handling_disk_errors("read aborted transactions"):
            self._aborted = [each for segment in self._segments for each in segment.aborted()]
        self._interruptions = log.cleaner.interruptions
        self._offsets = OffsetMap(limits.dedupe_buffer_bytes, limits.load_factor)
        self._target: CleanedSegment | None = None
        self.bytes_read = 0
        """As Kafka counts them: what was written anew, indexing left aside."""
        self.bytes_written = 0
        self.records_read = self.records_written = 0
        """Likewise."""
        self.slice_us = 100
        """How long a slice of work may hold the interpreter, about, in microseconds; where a batch has many records,
        some times as long. May be changed between slices."""
        self.waits = True
        """Whether the next slice waits, for the disk or a codec."""
        self.buffer_utilization = 0.0
        """How much of the dedupe buffer was used, from 0 to 1."""
        log.cleaner.in_progress = True

    @property
    def is_interrupted(self) -> bool:
        """Whether what was planned is no longer right."""
        return self._log.failure is not None or self._log.cleaner.interruptions != self._interruptions

    @property
    def end_offset(self) -> int:
        """Up to here nothing is dirty after the pass. Known once everything is indexed."""
        return self._offsets.latest_offset + 1

    # --- on the log's thread

    def replace_segments(self, replacement: SegmentReplacement) -> None:
        """Raises `OSError`; the log is offline then."""
        self._target = None
        replace_segments(self._log, replacement.old, replacement.new)

    def complete(self) -> None:
        """Everything was done."""
        self._log.cleaner.in_progress = False
        self._log.cleaner.checkpoint = self.end_offset

    def abort(self) -> None:
        """No more slices are asked for: the log is as it is. `discard`, on any thread, removes what was begun."""
        self._log.cleaner.in_progress = False

    # --- on any thread

    def discard(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            target.discard()

    def slices(self) -> Iterator[Slice]:
        """The work, to be asked for step by step, on one thread at a time. Raises `OSError`, or `CorruptLogError` and
        `CorruptRecordError` for what cannot be cleaned."""
        disk = self._log.env.disk
        for name in disk.names(self._directory):
            if name.endswith(CLEANED):
                # Left by an attempt that could not remove it; at a start it would undo a swap (`log_loader`).
                disk.remove(f"{self._directory}/{name}")
        yield from self._index()
        self.waits = True
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
            delete_retention_ms=self._config.delete_retention_ms,
        )
        sizes = [(segment.base_offset, segment.size, self._index_size(segment)) for segment in sources]
        at = 0
        for count in group_segments(sizes, self._config, self._end):
            group = sources[at : at + count]
            at += count
            self._target = target = CleanedSegment(self._log.env, self._directory, group[0].base_offset, self._config)
            for source in group:
                yield from self._rewrite(source, target, batches)
            target.finish(transactions.take_aborted_with_marker())
            yield SegmentReplacement(group, target)
            disk.sync_directory(self._directory)
        self.waits = False
        while self._offsets.forget(10 * self.slice_us):
            yield SliceDone(0, 0)

    def _index_size(self, segment: LogSegment) -> int:
        """Of the larger one; a segment whose index files are still to be written has none."""
        disk, size = self._log.env.disk, 0
        for suffix in (INDEX, TIME_INDEX):
            try:
                size = max(size, disk.size(segment.path(suffix)))
            except FileNotFoundError:
                continue
        return size

    # --- indexing

    def _index(self) -> Iterator[Slice]:
        """The last offset of each key, from the first dirty offset on, as far as there is room."""
        first, disk = self._first_dirty_offset, self._log.env.disk
        transactions = CleanedTransactionMetadata(each for each in self._aborted if each.last_offset >= first)
        for at, segment in enumerate(self._segments[:-1]):
            next_base = self._segments[at + 1].base_offset
            if next_base <= first:
                continue
            if segment.base_offset >= self._end:
                break
            for chunk in read_chunks(disk, segment, self._limits.io_buffer_bytes // 2):
                self.waits = False
                yield SliceDone(0, 0)
                cost = size = 0
                for header in chunk:
                    if header.last_offset >= first:
                        has_room = (
                            (yield from self._index_large(chunk.data, header, transactions))
                            if self._is_large(header)
                            else self._index_batch(chunk.data, header, transactions)
                        )
                        if not has_room:
                            return
                    size += header.size_in_bytes
                    cost += _cost(header)
                    if cost >= self.slice_us:
                        yield SliceDone(size, 0)
                        cost = size = 0
                self.waits = True
                yield SliceDone(size, 0)
            # What is missing before the next segment was cleaned away.
            self._offsets.latest_offset = next_base - 1

    def _index_batch(
        self, data: memoryview, header: RecordBatchHeader, transactions: CleanedTransactionMetadata
    ) -> bool:
        """Whether there was room for all of it."""
        if header.is_control:
            transactions.on_control_batch_read(header, marker_of(data, header))
        elif not transactions.on_batch_read(header):
            check_crc(data, header)
            _, found = decompress_records(data, header)
            if not self._put(header.base_offset, found.keys, found.offset_deltas):
                return False
        self._offsets.latest_offset = header.last_offset
        return True

    def _index_large(
        self, data: memoryview, header: RecordBatchHeader, transactions: CleanedTransactionMetadata
    ) -> Generator[Slice, None, bool]:
        """The same of a large batch, bit by bit."""
        if not transactions.on_batch_read(header):
            check_crc(data, header)
            _, found = yield from self._decompress_records(data, header)
            keys, deltas, most = found.keys, found.offset_deltas, self.slice_us
            for at in range(0, header.count, most):
                if not self._put(header.base_offset, keys[at : at + most], deltas[at : at + most]):
                    return False
                yield SliceDone(0, 0)
        self._offsets.latest_offset = header.last_offset
        return True

    def _put(self, base_offset: int, keys: Sequence[bytes | None], deltas: Sequence[int]) -> bool:
        """Whether there was room for all of these records."""
        first, offsets = self._first_dirty_offset, [base_offset + delta for delta in deltas]
        if None in keys or base_offset < first:
            wanted = [at for at, key in enumerate(keys) if key is not None and offsets[at] >= first]
            keys, offsets = [keys[at] for at in wanted], [offsets[at] for at in wanted]
        if not self._offsets.put(cast("Sequence[bytes]", keys), offsets):
            return False
        if offsets:
            self._offsets.latest_offset = offsets[-1]
        return True

    # --- writing anew

    def _rewrite(self, source: LogSegment, target: CleanedSegment, batches: BatchFilter) -> Iterator[Slice]:
        written = 0
        for chunk in read_chunks(self._log.env.disk, source, self._limits.io_buffer_bytes // 2):
            self.waits = False
            yield SliceDone(0, written)
            kept: list[RecordBatchHeader] = []
            parts: list[Buffer] = []
            # Where those begin that stay as they are, and for which there is no part yet.
            as_it_is = cost = size = 0
            for header in chunk:
                outcome = yield from self._filter(chunk.data, header, batches)
                if outcome is None:
                    kept.append(header)
                else:
                    if header.position > as_it_is:
                        parts.append(chunk.data[as_it_is : header.position])
                    as_it_is = header.end
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
            self.waits = True
            yield SliceDone(size, 0)
            if chunk.end > as_it_is:
                parts.append(chunk.data[as_it_is : chunk.end])
            # And the next piece is read, all at once: going from thread to thread is what requests feel.
            written = target.append(parts, kept) if parts else 0
            self.bytes_written += written
            self.records_written += sum(header.count for header in kept)
        yield SliceDone(0, written)

    def _filter(
        self, data: memoryview, header: RecordBatchHeader, batches: BatchFilter
    ) -> Generator[Slice, None, Buffer | None]:
        """As `BatchFilter.filter`."""
        if not self._is_large(header):
            return batches.filter(data, header)
        work = batches.filter_in_slices(
            data, header, (yield from self._decompress_records(data, header)), self.slice_us
        )
        while True:
            try:
                self.waits = next(work)
            except StopIteration as over:
                outcome = cast("Buffer | None", over.value)
                break
            yield SliceDone(0, 0)
        if self.waits:
            self.waits = False
            yield SliceDone(0, 0)
        return outcome

    def _decompress_records(
        self, data: memoryview, header: RecordBatchHeader
    ) -> Generator[Slice, None, DecompressedRecords]:
        """Look at a large batch, bit by bit."""
        if header.is_compressed:
            self.waits = True
            yield SliceDone(0, 0)
        body, found = records_data(data, header), record_filter.begin_partial()
        self.waits = False
        yield SliceDone(0, 0)
        is_seen = False
        while not is_seen:
            is_seen = record_filter.continue_partial(found, body, header.count, self.slice_us)
            yield SliceDone(0, 0)
        return body, found

    def _is_large(self, header: RecordBatchHeader) -> bool:
        """Too large to be dealt with in one slice."""
        if header.is_control:
            return False
        return header.count > self.slice_us or (header.is_compressed and header.size_in_bytes > _SMALL_BATCH)


def _cost(header: RecordBatchHeader) -> int:
    """In microseconds, about."""
    return 6 + header.count + (header.size_in_bytes >> 12)
