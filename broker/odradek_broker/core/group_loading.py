"""Building a `GroupShard` from its log: what counts of it, at start or when leadership comes here.

Owns what batches mean beyond their records: control batches, offsets that were committed in a transaction and count
once its marker says so, and that of every key only the last record counts. Leaves reading the log to the shell, and
the effect of a record to `GroupShard.load`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.core.group_records import decode_record
from odradek_broker.core.group_shard import GroupShard
from odradek_wire.records.batch import RecordBatchHeader, iterate
from odradek_wire.records.control import ControlRecordType, record_type_of
from odradek_wire.records.records import read_records


class Loading:
    """Fed with batches from the log's start on, then applied.

    A group that commits often has thousands of records of which one counts: only that one is decoded and replayed, at
    its place in the log, exactly as if compaction had removed the others."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        """Key → offset and value of its last record that counts."""
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Producer id → the same within its open transaction."""
        self._left: Iterator[tuple[bytes, bytes | None]] | None = None

    def feed(self, data: memoryview) -> int:
        """Take in these batches (the last may be cut off, and is left); returns the offset to go on from."""
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if header.is_control:
                self._end_transaction(data, header)
            else:
                into = self._latest
                if header.is_transactional:
                    into = self._open.setdefault(header.producer_id, {})
                for record in read_records(data, header):
                    if record.key is not None:
                        into[record.key] = (record.offset, record.value)
            next_offset = header.next_offset
        return next_offset

    def apply(self, count: int) -> bool:
        """Replay the next `count` records of those that count; False when all are. Nothing is fed after the first call.

        Raises `DecodeError` for a record that is none."""
        if self._left is None:
            ordered = sorted((offset, key, value) for key, (offset, value) in self._latest.items())
            self._left = iter([(key, value) for _, key, value in ordered])
        for _ in range(count):
            record = next(self._left, None)
            if record is None:
                return False
            self._shard.load(decode_record(*record))
        return True

    def _end_transaction(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            pending = self._open.pop(header.producer_id, {})
            if record_type_of(record.key) is not ControlRecordType.COMMIT:
                continue
            for key, committed in pending.items():
                # What was committed outside the transaction while it was open is younger, and stays.
                if committed[0] > self._latest.get(key, (-1, None))[0]:
                    self._latest[key] = committed
