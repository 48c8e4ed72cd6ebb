"""What the batches of a log say about its producers: as they are appended, and read again after a start or a
truncation."""

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
    """Fill the empty `producers` from the newest readable snapshot, and the batches after it.

    From `unsure_from` on (a segment's beginning; None: nowhere) a crash may have left less in the `.txnindex` files
    than there was, or more than there is of the log. They are made anew from the batches there, so that a later
    snapshot saves nothing (as in Kafka's LogLoader.recoverSegment).
    """
    never_had_one = not snapshots.offsets
    newest = log_end_offset if recovered_from is None else min(recovered_from, log_end_offset)
    snapshot = snapshots.load_newest(producers, log_start_offset, newest)
    if never_had_one and clean_shutdown:
        # Whoever closed this log cleanly and left no snapshot knew of no producer.
        return
    start = max(log_start_offset, snapshot or 0)
    if start < log_end_offset or recovered_from is not None:
        _replay(producers, segments, start)
        producers.remove_expired(now_ms)


def _replay(producers: ProducerStateManager, segments: LogSegments, start: int) -> None:
    """Tell `producers` of every batch from offset `start` on, and have those transactions indexed that were aborted
    there, and no others."""
    for segment in segments.from_offset(start):
        ended = segment.transaction_index.before(start)
        for header in segment.headers_from(start) if segment.size else ():
            if header.producer_id >= 0:
                batch = segment.open().read(header.size_in_bytes, header.position) if header.is_control else b""
                aborted = update(producers, header, batch)
                if aborted is not None:
                    ended.append(aborted)
        segment.transaction_index.replace(ended)


def update(
    producers: ProducerStateManager, header: RecordBatchHeader, batch: bytes | bytearray | memoryview
) -> AbortedTransaction | None:
    """One batch of a producer is part of the log; `header` has its offset there. `batch` is looked at only if it may
    end a transaction; the transaction is returned if that was aborted."""
    if not header.attributes & CONTROL_BIT:
        producers.update(header, header.base_offset)
        return None
    # Only logs with transactions need the control records' messages.
    from odradek_wire.messages.end_txn_marker import EndTxnMarker
    from odradek_wire.records.control import ControlRecordType, decode_control_record

    producers.verification_guards.appended(header)
    aborted = None
    for record in read_records(batch, read_header(batch)):
        record_type, marker = decode_control_record(record)
        if isinstance(marker, EndTxnMarker):
            last_offset = header.base_offset + header.last_offset_delta
            first_offset = producers.end_transaction(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp, last_offset
            )
            if record_type is ControlRecordType.ABORT and first_offset is not None:
                undecided = producers.transactions.first_ongoing_offset
                stable = last_offset + 1 if undecided is None else undecided
                aborted = AbortedTransaction(header.producer_id, first_offset, last_offset, stable)
    return aborted
