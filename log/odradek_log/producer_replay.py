"""What the batches of a log say about its producers: as they are appended, and read again after a start or a
truncation."""

from __future__ import annotations

from odradek_log.producer_snapshots import ProducerSnapshots
from odradek_log.producer_state import Producers
from odradek_log.segments import Segments
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.attributes import CONTROL_BIT
from odradek_wire.records.batch import RecordBatchHeader, read_header
from odradek_wire.records.records import read_records


def load(
    producers: Producers,
    snapshots: ProducerSnapshots,
    segments: Segments,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    *,
    clean_shutdown: bool,
) -> None:
    """Fill the empty `producers` from the newest readable snapshot, and the batches after it."""
    never_had_one = not snapshots.offsets
    snapshot = snapshots.load_newest(producers, log_end_offset)
    if never_had_one and clean_shutdown:
        # Whoever closed this log cleanly and left no snapshot knew of no producer.
        return
    start = max(log_start_offset, snapshot or 0)
    if start < log_end_offset:
        _replay(producers, segments, start)
        producers.remove_expired(now_ms)


def _replay(producers: Producers, segments: Segments, start: int) -> None:
    """Tell `producers` of every batch from offset `start` on, and write anew which transactions were aborted there."""
    for segment in segments.from_offset(start):
        segment.truncate_aborted(start)
        for header in segment.headers_from(start):
            if header.producer_id >= 0:
                batch = segment.open().read(header.size_in_bytes, header.position) if header.is_control else b""
                aborted = tell(producers, header, batch)
                if aborted is not None:
                    segment.append_aborted(aborted)


def tell(
    producers: Producers, header: RecordBatchHeader, batch: bytes | bytearray | memoryview
) -> AbortedTransaction | None:
    """One batch of a producer is part of the log; `header` has its offset there. `batch` is looked at only if it may
    end a transaction; the transaction is returned if that was aborted."""
    if not header.attributes & CONTROL_BIT:
        producers.update(header, header.base_offset)
        return None
    # Only logs with transactions need the control records' messages.
    from odradek_wire.messages.end_txn_marker import EndTxnMarker
    from odradek_wire.records.control import ControlRecordType, decode_control_record

    producers.verifications.appended(header)
    aborted = None
    for record in read_records(batch, read_header(batch)):
        record_type, marker = decode_control_record(record)
        if isinstance(marker, EndTxnMarker):
            first_offset = producers.end_transaction(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp
            )
            if record_type is ControlRecordType.ABORT and first_offset is not None:
                undecided = producers.first_undecided_offset
                last_offset = header.base_offset + header.last_offset_delta
                stable = last_offset + 1 if undecided is None else undecided
                aborted = AbortedTransaction(header.producer_id, first_offset, last_offset, stable)
    return aborted
