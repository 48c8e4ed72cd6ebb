"""What the batches of a log say about its producers, read again: after a start, and after a truncation."""

from __future__ import annotations

from odradek_log.producer_state import Producers
from odradek_log.segments import Segments
from odradek_wire.records.attributes import CONTROL_BIT
from odradek_wire.records.batch import RecordBatchHeader, read_header
from odradek_wire.records.records import read_records


def replay(producers: Producers, segments: Segments, start: int) -> None:
    """Tell `producers` of every batch from offset `start` on."""
    for segment in segments.from_offset(start):
        for header in segment.headers_from(start):
            if header.producer_id >= 0:
                batch = segment.open().read(header.size_in_bytes, header.position) if header.is_control else b""
                tell(producers, header, batch)


def tell(producers: Producers, header: RecordBatchHeader, batch: bytes | bytearray | memoryview) -> None:
    """One batch of a producer is part of the log; `header` has its offset there. `batch` is looked at only if it may
    end a transaction."""
    if not header.attributes & CONTROL_BIT:
        producers.update(header, header.base_offset)
        return
    # Only logs with transactions need the control records' messages.
    from odradek_wire.messages.end_txn_marker import EndTxnMarker
    from odradek_wire.records.control import decode_control_record

    for record in read_records(batch, read_header(batch)):
        _, marker = decode_control_record(record)
        if isinstance(marker, EndTxnMarker):
            producers.end_transaction(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp
            )
