"""The loading of a `GroupShard` from its log, when this broker becomes the coordinator.

Owns the choice of the last record of each key, and the end of transactions at control batches. Leaves reading the log
to the shell, and the effect of a record to `GroupShard.load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord, is_offset_key
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_wire.records.attributes import NO_PRODUCER_ID
from odradek_wire.records.batch import RecordBatchHeader, iterate
from odradek_wire.records.control import ControlRecordType, record_type_of
from odradek_wire.records.record_codec import read_records

Latest = dict[bytes, tuple[int, bytes | None]]
"""Key → offset and value of its last record."""


class GroupLoader:
    """Reads all batches of the log, then replays the last record of each key, in the order of the log. Offsets
    of an open transaction are replayed as pending ones.

    A group that commits often has thousands of records with one key: the others are not decoded, as if compaction had
    removed them."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._latest: Latest = {}
        self._pending_by_producer: dict[int, Latest] = {}
        """Producer id → the records of its open transaction."""
        self._remaining: Iterator[tuple[int, int, bytes, bytes | None]] | None = None

    def read_batches(self, data: memoryview) -> int:
        """Read these batches and return the offset after the last whole one; ignore a last batch that is cut off."""
        latest, pending_by_producer = self._latest, self._pending_by_producer
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if header.is_control:
                self._end_transaction(data, header)
            elif header.is_transactional:
                self._read_transactional(data, header)
            else:
                for record in read_records(data, header):
                    if record.key is not None:
                        latest[record.key] = (record.offset, record.value)
                        if pending_by_producer and record.value is None:
                            self._drop_pending(record.key)
            next_offset = header.next_offset
        return next_offset

    def replay_next(self, count: int) -> bool:
        """Replay the next `count` records; return False when none is left. `read_batches` is not called after this.

        Raises `DecodeError` for an invalid record."""
        if self._remaining is None:
            records = [(offset, NO_PRODUCER_ID, key, value) for key, (offset, value) in self._latest.items()]
            for producer_id, pending in self._pending_by_producer.items():
                records += [(offset, producer_id, key, value) for key, (offset, value) in pending.items()]
            self._remaining = iter(sorted(records))
        for _ in range(count):
            item = next(self._remaining, None)
            if item is None:
                return False
            _, producer_id, key, value = item
            self._shard.load(_in_transaction(self._shard.kinds.decode(key, value), producer_id))
        return True

    def _read_transactional(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            if record.key is None:
                continue
            into = self._latest
            if record.value is None:
                self._drop_pending(record.key)
            elif is_offset_key(record.key):
                into = self._pending_by_producer.setdefault(header.producer_id, {})
            # Any other record in a transactional batch takes effect immediately, as in Kafka.
            into[record.key] = (record.offset, record.value)

    def _drop_pending(self, key: bytes) -> None:
        """Delete the key's pending offsets in all open transactions: a tombstone applies to them, too."""
        for pending in self._pending_by_producer.values():
            pending.pop(key, None)

    def _end_transaction(self, data: memoryview, header: RecordBatchHeader) -> None:
        for record in read_records(data, header):
            pending = self._pending_by_producer.pop(header.producer_id, {})
            if record_type_of(record.key) is not ControlRecordType.COMMIT:
                continue
            for key, committed in pending.items():
                # Outside the transaction, a later offset may have been committed: it stays.
                if committed[0] > self._latest.get(key, (-1, None))[0]:
                    self._latest[key] = committed


def _in_transaction(record: CoordinatorRecord, producer_id: int) -> CoordinatorRecord:
    return replace(record, producer_id=producer_id) if isinstance(record, OffsetRecord) else record
