"""Building a `GroupShard` from its log: what counts of it, at start or when leadership comes here.

Owns what batches mean beyond their records: control batches, offsets that were committed in a transaction and count
once its marker says so, or are pending when there is none, and that of every key only the last record counts. Leaves
reading the log to the shell, and the effect of a record to `GroupShard.load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord, decode_record, is_offset_key
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_wire.records.attributes import NO_PRODUCER_ID
from odradek_wire.records.batch import RecordBatchHeader, iterate
from odradek_wire.records.control import ControlRecordType, record_type_of
from odradek_wire.records.records import read_records

Latest = dict[bytes, tuple[int, bytes | None]]
"""Key → offset and value of its last record that counts."""


class GroupLoader:
    """Fed with batches from the log's start on, then applied.

    A group that commits often has thousands of records of which one counts: only that one is decoded and replayed, at
    its place in the log, exactly as if compaction had removed the others."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._latest: Latest = {}
        self._open: dict[int, Latest] = {}
        """Producer id → the same within its open transaction."""
        self._left: Iterator[tuple[int, int, bytes, bytes | None]] | None = None

    def feed(self, data: memoryview) -> int:
        """Take in these batches (the last may be cut off, and is left); returns the offset to go on from."""
        latest, pending = self._latest, self._open
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if header.is_control:
                self._end_transaction(data, header)
            elif header.is_transactional:
                self._take_in_transaction(data, header)
            else:
                for record in read_records(data, header):
                    if record.key is not None:
                        latest[record.key] = (record.offset, record.value)
                        if pending and record.value is None:
                            self._forget(record.key)
            next_offset = header.next_offset
        return next_offset

    def apply(self, count: int) -> bool:
        """Replay the next `count` records of those that count or are pending; False when all are. Nothing is fed after
        the first call.

        Raises `DecodeError` for a record that is none."""
        if self._left is None:
            everything = [(offset, NO_PRODUCER_ID, key, value) for key, (offset, value) in self._latest.items()]
            for producer_id, pending in self._open.items():
                everything += [(offset, producer_id, key, value) for key, (offset, value) in pending.items()]
            self._left = iter(sorted(everything))
        for _ in range(count):
            left = next(self._left, None)
            if left is None:
                return False
            _, producer_id, key, value = left
            self._shard.load(_in_transaction(decode_record(key, value), producer_id))
        return True

    def _take_in_transaction(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            if record.key is None:
                continue
            into = self._latest
            if record.value is None:
                self._forget(record.key)
            elif is_offset_key(record.key):
                into = self._open.setdefault(header.producer_id, {})
            # Whatever else stands there counts at once, as in Kafka.
            into[record.key] = (record.offset, record.value)

    def _forget(self, key: bytes) -> None:
        """A deletion takes along what open transactions would commit there."""
        for pending in self._open.values():
            pending.pop(key, None)

    def _end_transaction(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            pending = self._open.pop(header.producer_id, {})
            if record_type_of(record.key) is not ControlRecordType.COMMIT:
                continue
            for key, committed in pending.items():
                # What was committed outside the transaction while it was open is younger, and stays.
                if committed[0] > self._latest.get(key, (-1, None))[0]:
                    self._latest[key] = committed


def _in_transaction(record: CoordinatorRecord, producer_id: int) -> CoordinatorRecord:
    return replace(record, producer_id=producer_id) if isinstance(record, OffsetRecord) else record
