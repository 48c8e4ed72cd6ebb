"""The records of `__transaction_state`, typed, and their bytes.

Owns Kafka's format of keys and values (a version as int16, then the message). Leaves batches to the shell and the
effect of a record to `transaction_shard`.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.core.transaction import Transaction

TRANSACTION_KEY = 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What is known of a transactional id from now on; None forgets it. `version` is that of the value: 1 under
    `transaction.version` 1 and later, else 0, which carries neither neighbouring producer ids nor the client's
    version."""

    transactional_id: str
    transaction: Transaction | None
    version: int = 1


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    raise NotImplementedError


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord | None:
    """None for a key of a kind that we do not know: it stays in the log, and means nothing to us.

    Raises `DecodeError` for a known key with a body that is none, or a value newer than we know."""
    raise NotImplementedError
