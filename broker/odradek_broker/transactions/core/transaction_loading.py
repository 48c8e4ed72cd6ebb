"""Building a `TransactionShard` from its log, at start or when leadership comes here.

Owns that of every transactional id only the last record counts. Leaves reading the log to the shell, and the effect of
a record to `TransactionShard.replay`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.transactions.core.transaction_records import decode_record
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_wire.records.batch import iterate
from odradek_wire.records.records import read_records


class TransactionLoading:
    """Fed with batches from the log's start on, then applied.

    A busy transactional id has thousands of records of which one counts: only that one is decoded and replayed."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard
        self._latest: dict[bytes, bytes | None] = {}
        self._left: Iterator[tuple[bytes, bytes | None]] | None = None

    def feed(self, data: memoryview) -> int:
        """Take in these batches (the last may be cut off, and is left); returns the offset to go on from."""
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if not header.is_control:
                for record in read_records(data, header):
                    if record.key is not None:
                        self._latest[record.key] = record.value
            next_offset = header.next_offset
        return next_offset

    def apply(self, count: int) -> bool:
        """Replay the next `count` records of those that count; False when all are. Nothing is fed after the first call.

        Raises `DecodeError` for a record that is none."""
        if self._left is None:
            self._left = iter(self._latest.items())
        for _ in range(count):
            item = next(self._left, None)
            if item is None:
                return False
            record = decode_record(*item)
            if record is not None:
                self._shard.replay(record)
        return True
