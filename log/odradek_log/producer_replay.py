"""Update the producer state from batches: at each append, and again after a start or a truncation."""

from __future__ import annotations

from odradek_log.log_segments import LogSegments
from odradek_log.producer_snapshots import ProducerSnapshots
from odradek_log.producer_state_manager import ProducerStateManager
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.attributes import CONTROL_BIT
from odradek_wire.records.batch import RecordBatchHeader, read_header
from odradek_wire.records.record_codec import read_records


def rebuild(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: LogSegments,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    *,
    recovered_from: int | None,
    clean_shutdown: bool,
) -> None:
    """Fill the empty `producers` from the newest valid snapshot and the batches after it.

    `recovered_from` is the base offset of the first segment that was recovered after a crash, or None. From there on,
    the `.txnindex` files may have less or more than the log: write them again from the batches, and use no later
    snapshot (LogLoader.recoverSegment).
    """
    had_no_snapshot = not snapshots.offsets
    newest = log_end_offset if recovered_from is None else min(recovered_from, log_end_offset)
    snapshot = snapshots.load_newest(producers, log_start_offset, newest)
    if had_no_snapshot and clean_shutdown:
        # A clean shutdown without a snapshot means that the log had no producers.
        return
    start = max(log_start_offset, snapshot or 0)
    if start < log_end_offset or recovered_from is not None:
        _replay(producers, segments, start)
        producers.remove_expired(now_ms)


def _replay(producers: ProducerStateManager, segments: LogSegments, start: int) -> None:
    """Update `producers` with every batch from offset `start` on; write exactly the transactions that were aborted
    there into the `.txnindex` files."""
    for segment in segments.from_offset(start):
        aborted_transactions = segment.transaction_index.before(start)
        for header in segment.headers_from(start) if segment.size else ():
            if header.producer_id >= 0:
                batch = segment.open().read(header.size_in_bytes, header.position) if header.is_control else b""
                aborted = update(producers, header, batch)
                if aborted is not None:
                    aborted_transactions.append(aborted)
        segment.transaction_index.replace(aborted_transactions)


def update(
    producers: ProducerStateManager, header: RecordBatchHeader, batch: bytes | bytearray | memoryview
) -> AbortedTransaction | None:
    """Update `producers` with one batch; `header` has the offset it has in the log. Read `batch` only if it may end a
    transaction; return the transaction if the batch aborts it."""
    if not header.attributes & CONTROL_BIT:
        producers.update(header, header.base_offset)
        return None
    # Imported here, because only logs with transactions need these messages.
    from odradek_wire.messages.end_txn_marker import EndTxnMarker
    from odradek_wire.records.control import ControlRecordType, decode_control_record

    producers.verification_guards.on_batch_appended(header)
    aborted = None
    for record in read_records(batch, read_header(batch)):
        record_type, marker = decode_control_record(record)
        if isinstance(marker, EndTxnMarker):
            last_offset = header.base_offset + header.last_offset_delta
            first_offset = producers.end_transaction(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp, last_offset
            )
            if record_type is ControlRecordType.ABORT and first_offset is not None:
                ongoing = producers.transactions.first_ongoing_offset
                stable = last_offset + 1 if ongoing is None else ongoing
                aborted = AbortedTransaction(header.producer_id, first_offset, last_offset, stable)
    return aborted
