"""Building a `GroupShard` from its log: the replay of batches, in order, at start or when leadership comes here.

Owns what batches mean beyond their records: control batches, and offsets that were committed in a transaction, which
count once the transaction's marker says so. Leaves reading the log to the shell, and the effect of a record to
`GroupShard.load`.
"""

from __future__ import annotations

from odradek_broker.core.group_records import CoordinatorRecord, OffsetRecord, decode_record
from odradek_broker.core.group_shard import GroupShard
from odradek_wire.records.batch import RecordBatchHeader, iterate
from odradek_wire.records.control import ControlRecordType, record_type_of
from odradek_wire.records.records import read_records

OffsetKey = tuple[str, str, int]


class Loading:
    """Fed with whole batches from the log's start on; the shard is ready when the end is reached."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._open: dict[int, dict[OffsetKey, tuple[int, OffsetRecord]]] = {}
        """Producer id → what it committed in its open transaction, with the offset of the record."""
        self._latest: dict[OffsetKey, int] = {}
        """Where the newest record of each offset stands: a transaction that ends late must not undo a later commit."""

    def feed(self, data: memoryview) -> int:
        """Replay these batches (the last may be cut off, and is left); returns the offset to go on from."""
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if header.is_control:
                self._end_transaction(data, header)
            else:
                self._replay(data, header)
            next_offset = header.next_offset
        return next_offset

    def _replay(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            if record.key is None:
                continue
            decoded = decode_record(record.key, record.value)
            if header.is_transactional and isinstance(decoded, OffsetRecord):
                key = (decoded.group_id, decoded.topic, decoded.partition)
                self._open.setdefault(header.producer_id, {})[key] = (record.offset, decoded)
            else:
                self._load(record.offset, decoded)

    def _end_transaction(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            kind = record_type_of(record.key)
            pending = self._open.pop(header.producer_id, {})
            if kind is not ControlRecordType.COMMIT:
                continue
            for key, (offset, committed) in pending.items():
                if offset > self._latest.get(key, -1):
                    self._load(offset, committed)

    def _load(self, offset: int, record: CoordinatorRecord) -> None:
        if isinstance(record, OffsetRecord):
            self._latest[record.group_id, record.topic, record.partition] = offset
        self._shard.load(record)
