"""The records of `__transaction_state`, and their encoding.

Owns Kafka's format of keys and values (a version as int16, then the message). Leaves batches to the shell and the
effect of a record to `transaction_shard`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_wire.codec import decode, encode
from odradek_wire.errors import DecodeError
from odradek_wire.messages.transaction_log_key import TransactionLogKey
from odradek_wire.messages.transaction_log_value import TransactionLogValue

TRANSACTION_KEY = 0
VALUE_VERSION = 1
"""Has tagged fields; written from `transaction.version` 1 on."""

_STATES = {state.number: state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new metadata of a transactional id; None is a tombstone.

    `version` is the version of the value: 1 from `transaction.version` 1 on, else 0. Version 0 has no previous and next
    producer ids, and no client version."""

    transactional_id: str
    transaction: TransactionMetadata | None
    version: int = VALUE_VERSION


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value as they are stored in the log."""
    key = _prefixed(TRANSACTION_KEY, encode(TransactionLogKey(record.transactional_id), 0))
    if record.transaction is None:
        return key, None
    return key, _prefixed(record.version, encode(_value(record.transaction, record.version), record.version))


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord | None:
    """Return the record; None if its key or value has an unknown version: as in Kafka it stays in the log without
    effect.

    Raises `DecodeError` for a known version with a body that cannot be decoded."""
    key, value = bytes(key), None if value is None else bytes(value)
    if int.from_bytes(key[:2], "big") != TRANSACTION_KEY:
        return None
    transactional_id = decode(TransactionLogKey, 0, key[2:]).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = int.from_bytes(value[:2], "big")
    if version > VALUE_VERSION:
        return None
    return TransactionRecord(
        transactional_id, _transaction(decode(TransactionLogValue, version, value[2:]), version), version
    )


def _value(transaction: TransactionMetadata, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=transaction.producer.id,
        producer_epoch=transaction.producer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction.state is not TransactionState.EMPTY:
        value.transaction_partitions = [
            TransactionLogValue.PartitionsSchema(topic, [index for _, index in of_topic])
            for topic, of_topic in groupby(sorted(transaction.partitions), key=lambda partition: partition[0])
        ]
    if version >= VALUE_VERSION:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return value


def _transaction(value: TransactionLogValue, version: int) -> TransactionMetadata:
    state = _STATES.get(value.transaction_status)
    if state is None:
        reason = f"unknown state {value.transaction_status}"
        raise DecodeError("TransactionLogValue", version, "transaction_status", 0, reason)
    return TransactionMetadata(
        producer=Producer(value.producer_id, value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (schema.topic, index) for schema in value.transaction_partitions or () for index in schema.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _prefixed(number: int, body: bytes) -> bytes:
    return number.to_bytes(2, "big") + body
