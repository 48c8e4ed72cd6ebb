"""Building a `TransactionShard` from its log, at start or when leadership comes here.

Owns that of every transactional id only the last record counts. Leaves reading the log to the shell, and the effect of
a record to `TransactionShard.replay`.
"""

from __future__ import annotations

from odradek_broker.core.transaction_shard import TransactionShard


class TransactionLoading:
    """Fed with batches from the log's start on, then applied."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard

    def feed(self, data: memoryview) -> int:
        """Take in these batches (the last may be cut off, and is left); returns the offset to go on from."""
        raise NotImplementedError

    def apply(self, count: int) -> bool:
        """Replay the next `count` records of those that count; False when all are. Nothing is fed after the first call.

        Raises `DecodeError` for a record that is none."""
        raise NotImplementedError
