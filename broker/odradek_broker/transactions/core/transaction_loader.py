"""Loading a `TransactionShard` from its log, when this broker becomes its leader.

Owns the choice of the last record of each transactional id. Leaves reading the log to the shell, and the effect of a
record to `TransactionShard.replay`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.transactions.core.transaction_records import decode_record
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records


class TransactionLoader:
    """Receives batches by `read_batches`, beginning with the log's first one, then replays by `replay_next`.

    A log may contain thousands of records of one transactional id: only the last one is decoded and replayed."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard
        self._latest: dict[bytes, bytes | None] = {}
        self._left: Iterator[tuple[bytes, bytes | None]] | None = None

    def read_batches(self, data: memoryview) -> int:
        """Read these batches and return the offset after the last whole one; ignore a last batch that is cut off."""
        next_offset = -1
        for header in iterate(data, allow_partial=True):
            if not header.is_control:
                for record in read_records(data, header):
                    if record.key is not None:
                        self._latest[record.key] = record.value
            next_offset = header.next_offset
        return next_offset

    def replay_next(self, count: int) -> bool:
        """Replay the next `count` records; return False when none is left. `read_batches` is not called after this.

        Raises `DecodeError` for a record that cannot be decoded."""
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
