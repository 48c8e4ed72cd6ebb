"""The rules of transactions: which request is allowed in which state, and its error otherwise.

Each rule takes the present metadata and returns the next metadata, which the caller writes, or an error; NONE if there
is nothing to write. Leaves busy ids (most requests for them get CONCURRENT_TRANSACTIONS) to `transaction_shard`, and
replacing errors that older clients do not know to `transaction_step`.

The facts are those of TransactionCoordinator in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.transactions.core.transaction_metadata import (
    EPOCH_BUMP_FROM,
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from odradek_wire.errors import ErrorCode

Transition = TransactionMetadata | ErrorCode

NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def initialize(
    current: TransactionMetadata | None,
    expected: Producer | None,
    timeout_ms: int,
    level: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> Transition:
    """InitProducerId: initialize a new producer, or, with the `expected` id and epoch, a producer that continues after
    an error (KIP-360). If a transaction is open, abort it; the client retries. The transaction must not be decided.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    if current is None:
        if fresh_producer_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        current = TransactionMetadata.new(fresh_producer_id, timeout_ms)
    if expected is not None and not _may_continue(current, expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING:
        return abort(current, level, fresh_producer_id, now_ms)
    id_, epoch = current.producer
    if current.is_epoch_exhausted and (expected is None or expected.epoch == epoch):
        if fresh_producer_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        last_epoch = NO_EPOCH if expected is None else epoch
        return current.initialize(Producer(fresh_producer_id, 0), last_epoch, timeout_ms, now_ms)
    if expected is not None and epoch != NO_EPOCH and expected.epoch != epoch:
        if expected.epoch != current.last_epoch:
            return ErrorCode.PRODUCER_FENCED
        # A retry after a lost response. No other producer was initialized since: that would have reset the last epoch.
        return current.initialize(current.producer, current.last_epoch, timeout_ms, now_ms)
    last_epoch = NO_EPOCH if expected is None else epoch
    return current.initialize(Producer(id_, epoch + 1), last_epoch, timeout_ms, now_ms)


def _may_continue(current: TransactionMetadata, expected: Producer) -> bool:
    """Whether the producer's id allows it to continue (Kafka's isValidProducerId). A request with the previous producer
    id may be a retry of the request that changed it."""
    return (
        current.producer.epoch == NO_EPOCH
        or expected.id == current.producer.id
        or (expected.id == current.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH)
    )


def add(
    current: TransactionMetadata | None,
    producer: Producer,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transition:
    """Add partitions to the open transaction, or begin one. The transaction must not be decided."""
    error = add_error(current, producer)
    if error or current is None:
        return error
    if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
        return ErrorCode.NONE
    return current.add(partitions, client_version, now_ms)


def add_error(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """The error for a producer that may not add partitions, even if the id is busy; NONE for others."""
    return ErrorCode.NONE if _has_next_producer_id(current, producer) else identity_error(current, producer)


def _has_next_producer_id(current: TransactionMetadata | None, producer: Producer) -> bool:
    """Whether the producer uses its next id already, which the EndTxn response returned before the transaction was
    complete. (Kafka returns INVALID_PRODUCER_ID_MAPPING.)"""
    return (
        current is not None
        and current.is_decided
        and current.next_producer_id != NO_PRODUCER_ID
        and producer == Producer(current.next_producer_id, 0)
    )


def verify(
    current: TransactionMetadata | None, producer: Producer, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """Return NONE for partitions of the open transaction, TRANSACTION_ABORTABLE for others. A busy id does not matter,
    because the log checks again when it appends."""
    error = identity_error(current, producer)
    if error or current is None:
        return dict.fromkeys(partitions, error)
    if current.is_decided:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def end_without_epoch_bump(
    current: TransactionMetadata | None, producer: Producer, commit: bool, now_ms: int
) -> Transition:
    """EndTxn before version 5. A retry cannot be distinguished from the end of the next transaction: it succeeds if the
    last transaction ended in the same way. The transaction must not be decided."""
    error = identity_error(current, producer)
    if error or current is None:
        return error
    if current.state is TransactionState.ONGOING:
        return current.decide(commit, 0, NO_PRODUCER_ID, now_ms)
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return ErrorCode.NONE if current.state is done else ErrorCode.INVALID_TXN_STATE


def end(
    current: TransactionMetadata | None, producer: Producer, commit: bool, fresh_producer_id: int | None, now_ms: int
) -> Transition:
    """EndTxn from version 5 on (KIP-890): the epoch distinguishes a retry from the end of the next transaction. The
    client may abort a transaction that has not begun, because it cannot always know whether it has. The transaction
    must not be decided.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    error = end_error(current, producer)
    if error or current is None:
        return error
    if producer != current.producer:  # a retry
        done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return ErrorCode.NONE if current.state is done else ErrorCode.INVALID_TXN_STATE
    if commit and current.state is not TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    return _decide(current, commit, EPOCH_BUMP_FROM, fresh_producer_id, now_ms)


def end_error(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """The error for a producer that may not end a transaction from version 5 on, even if the id is busy. NONE for the
    present producer, and for a retry of the EndTxn that incremented its epoch."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if _has_next_producer_id(current, producer):
        return ErrorCode.NONE
    rotated = (
        producer.id == current.previous_producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and current.producer.epoch == 0
    )
    bumped = current.producer.epoch == producer.epoch + 1
    if producer.id != current.producer.id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # `ended` means that the producer's own EndTxn incremented the epoch, not the InitProducerId of another producer.
    # Kafka does not check this: if InitProducerId has fenced the producer, and the next producer has ended its
    # transaction below version 5, Kafka takes the request for a retry and returns the current epoch.
    ended = current.client_version >= EPOCH_BUMP_FROM and (current.is_decided or current.state in _COMPLETE)
    if producer.epoch == current.producer.epoch or (ended and (rotated or bumped)):
        return ErrorCode.NONE
    return ErrorCode.PRODUCER_FENCED


def abort(current: TransactionMetadata, level: int, fresh_producer_id: int | None, now_ms: int) -> Transition:
    """Abort the open transaction, and fence its producer. `level` is the cluster's transaction version: the producer's
    own version does not matter.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    if level < EPOCH_BUMP_FROM:
        return current.fence(now_ms)
    return _decide(current, False, level, fresh_producer_id, now_ms)


def may_need_producer_id(current: TransactionMetadata | None) -> bool:
    """Whether `initialize`, `end` or `abort` may need a fresh producer id."""
    return current is None or current.is_epoch_exhausted


def _decide(
    current: TransactionMetadata, commit: bool, version: int, fresh_producer_id: int | None, now_ms: int
) -> Transition:
    next_producer_id = NO_PRODUCER_ID
    if current.is_epoch_exhausted:
        if fresh_producer_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        next_producer_id = fresh_producer_id
    return current.decide(commit, version, next_producer_id, now_ms)


def identity_error(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """The error for a producer that is not the present one; NONE if it is."""
    if current is None or current.producer.id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if current.producer.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED
