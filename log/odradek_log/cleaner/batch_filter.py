"""What becomes of one batch when its log is cleaned: it stays as it is, loses records, is emptied, or goes.

Owns the rules of Kafka's Cleaner and of MemoryRecords.filterTo for batches of magic 2: superseded records go, aborted
ones at once; tombstones, and markers whose transactions are gone, stay until the delete horizon that their batch got
when the cleaner first met them so (KIP-534); the last batch of each active producer, and the last of what is cleaned,
stay without records rather than not at all. No I/O.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from typing import NamedTuple, TypeAlias

from odradek_log.cleaner.offset_map import OffsetMap
from odradek_log.cleaner.transaction_metadata import CleanedTransactionMetadata
from odradek_log.producer_state_manager import ProducerStateManager
from odradek_wire.records import record_filter
from odradek_wire.records.batch import Buffer, RecordBatchHeader, check_crc
from odradek_wire.records.record_codec import read_records, records_data

_NONE: frozenset[int] = frozenset()


DecompressedRecords: TypeAlias = tuple[bytes, record_filter.PartialRecords]
"""The records of a batch, decompressed, and their outline."""


class LastRecord(NamedTuple):
    """Of an active producer: where its last data ends, -1 if nothing is left but its epoch."""

    last_data_offset: int
    producer_epoch: int


def last_records(producers: ProducerStateManager) -> dict[int, LastRecord]:
    """By producer id."""
    return {
        entry.producer_id: LastRecord(
            entry.batches[-1].last_offset if entry.batches else -1,
            entry.producer_epoch,
        )
        for entry in producers
    }


def decompress_records(data: memoryview, header: RecordBatchHeader) -> DecompressedRecords:
    """Look at the records of a batch."""
    body = records_data(data, header)
    return body, record_filter.read_partial(body, header.count)


class BatchFilter:
    """For one pass over a log."""

    __slots__ = ("_delete_retention_ms", "_end", "_last_records", "_now_ms", "_offsets", "_transactions")

    def __init__(
        self,
        *,
        offsets: OffsetMap,
        transactions: CleanedTransactionMetadata,
        producers: Mapping[int, LastRecord],
        end: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`end` is where the pass ends: the batch before it stays, so that the log does not forget its offset."""
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = producers
        self._end = end
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def filter(self, data: memoryview, header: RecordBatchHeader) -> Buffer | None:
        """What takes the place of the batch at the header's position in `data`: None if it stays as it is, no bytes if
        it goes. Raises `CorruptRecordError`."""
        if header.is_control:
            return self._filter_control(data, header)
        if self._transactions.on_batch_read(header):
            return self._empty_or_discard(header)
        body, found = decompress_records(data, header)
        gone = self._discarded(header, found, self._superseded(header, found, 0, header.count))
        wants_horizon = self._wants_horizon(header, found, gone)
        if not gone and not wants_horizon and header.count:
            return None
        if len(gone) == header.count:
            return self._empty_or_discard(header)
        check_crc(data, header)
        kept = [at for at in range(header.count) if at not in gone]
        horizon_ms = self._new_horizon_ms() if wants_horizon else None
        return record_filter.retain(header, body, found, kept, delete_horizon_ms=horizon_ms)

    def filter_in_slices(
        self, data: memoryview, header: RecordBatchHeader, decompressed: DecompressedRecords, most: int
    ) -> Generator[bool, None, Buffer | None]:
        """The same of a large batch of data, whose records somebody looked at already, bit by bit: about `most` records
        between two yields, each of which says whether a codec comes next. Returns what `filter` does."""
        if self._transactions.on_batch_read(header):
            return self._empty_or_discard(header)
        body, found = decompressed
        superseded: list[int] = []
        for first in range(0, header.count, most):
            superseded += self._superseded(header, found, first, min(first + most, header.count))
            yield False
        gone = self._discarded(header, found, superseded)
        wants_horizon = self._wants_horizon(header, found, gone)
        if not gone and not wants_horizon:
            return None
        if len(gone) == header.count:
            return self._empty_or_discard(header)
        yield False
        check_crc(data, header)
        kept: list[int] = []
        for first in range(0, header.count, most):
            kept += [at for at in range(first, min(first + most, header.count)) if at not in gone]
            yield False
        horizon_ms = self._new_horizon_ms() if wants_horizon else None
        return (
            yield from record_filter.retain_in_slices(header, body, found, kept, most, delete_horizon_ms=horizon_ms)
        )

    def _superseded(
        self, header: RecordBatchHeader, found: record_filter.PartialRecords, first: int, end: int
    ) -> list[int]:
        """Which of the records from `first` on, before `end`, have a later one with their key."""
        base, keys, deltas = header.base_offset, found.keys, found.offset_deltas
        if end - first < len(keys):
            keys, deltas = keys[first:end], deltas[first:end]
        superseded = self._offsets.superseded(keys, [base + delta for delta in deltas])
        return [first + at for at in superseded] if first else superseded

    def _discarded(
        self, header: RecordBatchHeader, found: record_filter.PartialRecords, superseded: list[int]
    ) -> Set[int]:
        """Which records, by index."""
        latest, horizon_ms = self._offsets.latest_offset, header.delete_horizon_ms
        if not superseded and not found.keyless and horizon_ms is None:
            return _NONE
        gone = {*superseded, *found.keyless}
        if horizon_ms is not None and horizon_ms <= self._now_ms:
            gone.update(found.tombstones)
        if gone and header.last_offset > latest:
            # Beyond what was looked at nothing is known.
            base, deltas = header.base_offset, found.offset_deltas
            gone = {at for at in gone if base + deltas[at] <= latest}
        return gone

    def _wants_horizon(self, header: RecordBatchHeader, found: record_filter.PartialRecords, gone: Set[int]) -> bool:
        """Whether tombstones stay that nobody has met before."""
        return header.delete_horizon_ms is None and any(at not in gone for at in found.tombstones)

    def _filter_control(self, data: memoryview, header: RecordBatchHeader) -> Buffer | None:
        needless = self._transactions.on_control_batch_read(header, marker_of(data, header))
        horizon_ms = header.delete_horizon_ms
        if header.count == 0 or (needless and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._empty_or_discard(header)
        if needless and horizon_ms is None:
            check_crc(data, header)
            kept = range(header.count)
            return record_filter.retain(
                header, *decompress_records(data, header), kept, delete_horizon_ms=self._new_horizon_ms()
            )
        return None

    def _empty_or_discard(self, header: RecordBatchHeader) -> Buffer:
        if header.next_offset == self._end or self._is_last_of_producer(header):
            return record_filter.empty_batch(header)
        return b""

    def _is_last_of_producer(self, header: RecordBatchHeader) -> bool:
        """Who is active is recognised by its last data, with the sequence; or by a marker with its epoch."""
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _new_horizon_ms(self) -> int:
        return self._now_ms + self._delete_retention_ms


def marker_of(data: memoryview, header: RecordBatchHeader) -> bool | None:
    """Whether a control batch says that a transaction was committed, or aborted; None if it says neither."""
    # Only logs with transactions need the control records' messages.
    from odradek_wire.records.control import ControlRecordType, record_type_of

    for record in read_records(data, header):
        kind = record_type_of(record.key)
        if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            return kind is ControlRecordType.COMMIT
        break
    return None
