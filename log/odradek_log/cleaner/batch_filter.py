"""Decide what the cleaner does with one batch: keep it, remove records, keep it without records, or remove it.

Owns the rules of Kafka's Cleaner and MemoryRecords.filterTo for batches of magic 2. Superseded and aborted records are
removed immediately. Tombstones, and markers of transactions without records, stay until the delete horizon, which their
batch gets when the cleaner first reads it (KIP-534). The last batch of each active producer, and the last batch that
the cleaner reads, stay without records. Does no I/O.
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
"""The decompressed records of a batch, and their keys and positions."""


class LastRecord(NamedTuple):
    """The last data offset of an active producer, -1 if only its epoch is known."""

    last_data_offset: int
    producer_epoch: int


def last_records(producers: ProducerStateManager) -> dict[int, LastRecord]:
    """Return the last records of all active producers by producer id."""
    return {
        entry.producer_id: LastRecord(
            entry.batches[-1].last_offset if entry.batches else -1,
            entry.producer_epoch,
        )
        for entry in producers
    }


def decompress_records(data: memoryview, header: RecordBatchHeader) -> DecompressedRecords:
    """Decompress the records of a batch; read keys and positions. Raises CorruptRecordError."""
    body = records_data(data, header)
    return body, record_filter.read_partial(body, header.count)


class BatchFilter:
    """The filter of one pass over a log."""

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
        """`end` is the end of the pass: the batch before it stays, so that the log keeps its offset."""
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = producers
        self._end = end
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def filter(self, data: memoryview, header: RecordBatchHeader) -> Buffer | None:
        """Return what replaces the batch at the header's position in `data`: None to keep it, no bytes to remove it.
        Raises CorruptRecordError."""
        if header.is_control:
            return self._filter_control(data, header)
        if self._transactions.on_batch_read(header):
            return self._empty_or_discard(header)
        body, found = decompress_records(data, header)
        gone = self._discarded(header, found, self._superseded(header, found, 0, header.count))
        needs_horizon = self._needs_delete_horizon(header, found, gone)
        if not gone and not needs_horizon and header.count:
            return None
        if len(gone) == header.count:
            return self._empty_or_discard(header)
        check_crc(data, header)
        kept = [at for at in range(header.count) if at not in gone]
        horizon_ms = self._new_horizon_ms() if needs_horizon else None
        return record_filter.retain(header, body, found, kept, delete_horizon_ms=horizon_ms)

    def filter_in_slices(
        self, data: memoryview, header: RecordBatchHeader, decompressed: DecompressedRecords, records_max: int
    ) -> Generator[bool, None, Buffer | None]:
        """Like `filter`, for a large batch whose records are decompressed, with about `records_max` records between two
        yields. Yields whether the next step compresses."""
        if self._transactions.on_batch_read(header):
            return self._empty_or_discard(header)
        body, found = decompressed
        superseded: list[int] = []
        for first in range(0, header.count, records_max):
            superseded += self._superseded(header, found, first, min(first + records_max, header.count))
            yield False
        gone = self._discarded(header, found, superseded)
        needs_horizon = self._needs_delete_horizon(header, found, gone)
        if not gone and not needs_horizon:
            return None
        if len(gone) == header.count:
            return self._empty_or_discard(header)
        yield False
        check_crc(data, header)
        kept: list[int] = []
        for first in range(0, header.count, records_max):
            kept += [at for at in range(first, min(first + records_max, header.count)) if at not in gone]
            yield False
        horizon_ms = self._new_horizon_ms() if needs_horizon else None
        return (
            yield from record_filter.retain_in_slices(
                header, body, found, kept, records_max, delete_horizon_ms=horizon_ms
            )
        )

    def _superseded(
        self, header: RecordBatchHeader, found: record_filter.PartialRecords, first: int, end: int
    ) -> list[int]:
        """Return the indices of the records in [first, end) whose key has a later record."""
        base, keys, deltas = header.base_offset, found.keys, found.offset_deltas
        if end - first < len(keys):
            keys, deltas = keys[first:end], deltas[first:end]
        superseded = self._offsets.superseded(keys, [base + delta for delta in deltas])
        return [first + at for at in superseded] if first else superseded

    def _discarded(
        self, header: RecordBatchHeader, found: record_filter.PartialRecords, superseded: list[int]
    ) -> Set[int]:
        """Return the indices of the records that are removed."""
        latest, horizon_ms = self._offsets.latest_offset, header.delete_horizon_ms
        if not superseded and not found.keyless and horizon_ms is None:
            return _NONE
        gone = {*superseded, *found.keyless}
        if horizon_ms is not None and horizon_ms <= self._now_ms:
            gone.update(found.tombstones)
        if gone and header.last_offset > latest:
            # The map has no offsets beyond this one: keep those records.
            base, deltas = header.base_offset, found.offset_deltas
            gone = {at for at in gone if base + deltas[at] <= latest}
        return gone

    def _needs_delete_horizon(
        self, header: RecordBatchHeader, found: record_filter.PartialRecords, gone: Set[int]
    ) -> bool:
        """Return whether the batch keeps tombstones and has no delete horizon yet."""
        return header.delete_horizon_ms is None and any(at not in gone for at in found.tombstones)

    def _filter_control(self, data: memoryview, header: RecordBatchHeader) -> Buffer | None:
        can_discard = self._transactions.on_control_batch_read(header, commits(data, header))
        horizon_ms = header.delete_horizon_ms
        if header.count == 0 or (can_discard and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._empty_or_discard(header)
        if can_discard and horizon_ms is None:
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
        """Return whether the batch has the last sequence of an active producer, or the marker with its epoch."""
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _new_horizon_ms(self) -> int:
        return self._now_ms + self._delete_retention_ms


def commits(data: memoryview, header: RecordBatchHeader) -> bool | None:
    """Return whether a control batch commits (True) or aborts (False) a transaction; None if neither."""
    # Imported here, because only logs with transactions need these messages.
    from odradek_wire.records.control import ControlRecordType, record_type_of

    for record in read_records(data, header):
        kind = record_type_of(record.key)
        if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            return kind is ControlRecordType.COMMIT
        break
    return None
