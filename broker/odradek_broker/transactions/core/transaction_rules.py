"""What becomes of a transaction when somebody asks for something: the rules, and their errors.

Owns who may do what in which state. Each rule takes the present picture and returns the next one, which is to be
written, or an error; NONE if there is nothing to write. Leaves whether an id is busy (a record or markers under way:
most requests are answered with CONCURRENT_TRANSACTIONS then) to `transaction_shard`, and what older clients are told in
place of an error that they do not know to `transaction_step`.

The facts are those of Kafka's TransactionCoordinator in 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.transactions.core.transaction_metadata import (
    EPOCH_GROWS_FROM,
    LAST_EPOCH_OF_CLIENTS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from odradek_wire.errors import ErrorCode

Outcome = TransactionMetadata | ErrorCode

NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def initialize(
    current: TransactionMetadata | None,
    expected: Producer | None,
    timeout_ms: int,
    level: int,
    fresh_id: int | None,
    now_ms: int,
) -> Outcome:
    """A producer begins to work, or (KIP-360: with the identity it had, `expected`) goes on after an error. If a
    transaction is open the outcome is its abortion, and the producer has to ask again. Not for a decided transaction.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    if current is None:
        if fresh_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        current = TransactionMetadata.new(fresh_id, timeout_ms)
    if expected is not None and not _may_go_on(current, expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING:
        return abort(current, level, fresh_id, now_ms)
    id_, epoch = current.producer
    if current.epochs_used_up and (expected is None or expected.epoch == epoch):
        if fresh_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        last_epoch = NO_EPOCH if expected is None else epoch
        return current.initialize(Producer(fresh_id, 0), last_epoch, timeout_ms, now_ms)
    if expected is not None and epoch != NO_EPOCH and expected.epoch != epoch:
        if expected.epoch != current.last_epoch:
            return ErrorCode.PRODUCER_FENCED
        # The answer to the same request got lost. Nobody else came since: that would have wiped out the last epoch.
        return current.initialize(current.producer, current.last_epoch, timeout_ms, now_ms)
    last_epoch = NO_EPOCH if expected is None else epoch
    return current.initialize(Producer(id_, epoch + 1), last_epoch, timeout_ms, now_ms)


def _may_go_on(current: TransactionMetadata, expected: Producer) -> bool:
    """The epoch is looked at later. With the previous producer id it may be a retry of what gave it the present one."""
    return (
        current.producer.epoch == NO_EPOCH
        or expected.id == current.producer.id
        or (expected.id == current.previous_id and expected.epoch >= LAST_EPOCH_OF_CLIENTS)
    )


def add(
    current: TransactionMetadata | None,
    producer: Producer,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Outcome:
    """Partitions join the open transaction, or begin one. Not for a decided transaction."""
    error = add_refused(current, producer)
    if error or current is None:
        return error
    if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
        return ErrorCode.NONE
    return current.add(partitions, client_version, now_ms)


def add_refused(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """Whose identity keeps it from adding partitions, whatever is under way; NONE for the others."""
    return ErrorCode.NONE if _comes_next(current, producer) else identity_error(current, producer)


def _comes_next(current: TransactionMetadata | None, producer: Producer) -> bool:
    """Who has been told its next producer id may come before the transaction in which it changes is complete (Kafka
    turns it away for good)."""
    return (
        current is not None
        and current.is_decided
        and current.next_id != NO_PRODUCER_ID
        and producer == Producer(current.next_id, 0)
    )


def verify(
    current: TransactionMetadata | None, producer: Producer, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """Whether these partitions are in the open transaction. A record under way does not matter: the log has the last
    word when it appends."""
    error = identity_error(current, producer)
    if error or current is None:
        return dict.fromkeys(partitions, error)
    if current.is_decided:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def end_before_epochs_grow(
    current: TransactionMetadata | None, producer: Producer, commit: bool, now_ms: int
) -> Outcome:
    """EndTxn of clients before version 5. Which transaction is meant cannot be told: a repeated request is taken for
    done if the last transaction ended that way. Not for a decided transaction."""
    error = identity_error(current, producer)
    if error or current is None:
        return error
    if current.state is TransactionState.ONGOING:
        return current.decide(commit, 0, NO_PRODUCER_ID, now_ms)
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return ErrorCode.NONE if current.state is done else ErrorCode.INVALID_TXN_STATE


def end(
    current: TransactionMetadata | None, producer: Producer, commit: bool, fresh_id: int | None, now_ms: int
) -> Outcome:
    """EndTxn from version 5 on (KIP-890): the epoch tells a retry from the end of the next transaction. That one may be
    aborted before it begins, since a client cannot always know whether it has. Not for a decided transaction.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    error = end_refused(current, producer)
    if error or current is None:
        return error
    if producer != current.producer:  # a retry
        done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return ErrorCode.NONE if current.state is done else ErrorCode.INVALID_TXN_STATE
    if commit and current.state is not TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    return _decide(current, commit, EPOCH_GROWS_FROM, fresh_id, now_ms)


def end_refused(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """Whose identity keeps it from ending a transaction from version 5 on, whatever is under way; NONE for the others:
    whoever produces, or has asked for the end that made the present producer."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if _comes_next(current, producer):
        return ErrorCode.NONE
    rotated = (
        producer.id == current.previous_id and producer.epoch == LAST_EPOCH_OF_CLIENTS and current.producer.epoch == 0
    )
    bumped = current.producer.epoch == producer.epoch + 1
    if producer.id != current.producer.id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Its own end gave it the present epoch, then, and no InitProducerId of somebody else: Kafka does not look at that,
    # and lets whom such a one has outdated go on if the next transaction ended without an epoch of its own.
    ended = current.client_version >= EPOCH_GROWS_FROM and (current.is_decided or current.state in _COMPLETE)
    if producer.epoch == current.producer.epoch or (ended and (rotated or bumped)):
        return ErrorCode.NONE
    return ErrorCode.PRODUCER_FENCED


def abort(current: TransactionMetadata, level: int, fresh_id: int | None, now_ms: int) -> Outcome:
    """The coordinator aborts the open transaction, and outdates who began it. `level` is the cluster's transaction
    version: whose producer it is does not matter.

    CONCURRENT_TRANSACTIONS if a fresh producer id is needed and none is given."""
    if level < EPOCH_GROWS_FROM:
        return current.fence(now_ms)
    return _decide(current, False, level, fresh_id, now_ms)


def takes_fresh_id(current: TransactionMetadata | None) -> bool:
    """Whether `initialize`, `end` or `abort` may need a fresh producer id."""
    return current is None or current.epochs_used_up


def _decide(current: TransactionMetadata, commit: bool, version: int, fresh_id: int | None, now_ms: int) -> Outcome:
    next_id = NO_PRODUCER_ID
    if current.epochs_used_up:
        if fresh_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        next_id = fresh_id
    return current.decide(commit, version, next_id, now_ms)


def identity_error(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    if current is None or current.producer.id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if current.producer.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED
