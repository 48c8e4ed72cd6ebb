"""Verification of transactional batches before they are appended (KIP-890): is this partition part of the producer's
transaction? Follows ReplicaManager.maybeSendPartitionsToTransactionCoordinator.

Owns taking a verification guard from each partition, and the choice of the partitions to verify. Leaves the request to
`add_partitions_to_txn_manager`, and appending and the client's response to the callers: Produce and TxnOffsetCommit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek_broker.deferred import Deferred
from odradek_broker.replication.partition import Partition
from odradek_broker.transactions.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    PartitionErrors,
    TransactionSupportedOperation,
)
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition
from odradek_log.verification_guard import NOT_REQUIRED, ONGOING, VerificationGuard
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek_wire.records.attributes import NO_SEQUENCE

VERIFICATION_ENABLE = "transaction.partition.verification.enable"


class TransactionVerification(NamedTuple):
    """The outcome for the partitions of one transaction: a guard to append with, or an error."""

    operation: TransactionSupportedOperation
    guards: dict[TopicPartition, VerificationGuard]
    errors: dict[TopicPartition, ErrorCode]


def verify(
    manager: AddPartitionsToTxnManager,
    transactional_id: str,
    producer: Producer,
    batches: Iterable[tuple[Partition, int]],
    operation: TransactionSupportedOperation,
    *,
    required: bool,
) -> TransactionVerification | Deferred[TransactionVerification]:
    """Verify that the partitions of these batches are part of the transaction, or add them. Partitions whose log
    already contains records of the transaction are not sent to the coordinator.

    `batches` are pairs of a partition and the first sequence number of its batch. `required` is
    `transaction.partition.verification.enable`: if it is false, logs append without a guard."""
    verification = TransactionVerification(operation, {}, {})
    unverified: list[TopicPartition] = []
    for partition, sequence in batches:
        topic_partition = partition.topic, partition.index
        if not operation.adds and not required:
            verification.guards[topic_partition] = NOT_REQUIRED
            continue
        guard = partition.begin_verification(*producer, sequence, adds_partition=operation.adds)
        if isinstance(guard, ErrorCode):
            verification.errors[topic_partition] = guard
            continue
        verification.guards[topic_partition] = guard if required else NOT_REQUIRED
        if guard is not ONGOING:
            unverified.append(topic_partition)
    if not unverified:
        return verification
    errors = manager.add_or_verify(transactional_id, producer, unverified, operation)
    if isinstance(errors, Deferred):
        return errors.map(lambda received: _with_errors(verification, received))
    return _with_errors(verification, errors)


def _with_errors(verification: TransactionVerification, errors: PartitionErrors) -> TransactionVerification:
    verification.errors.update(errors)
    return verification


def verify_offset_commit(
    manager: AddPartitionsToTxnManager,
    partition: Partition,
    request: TxnOffsetCommitRequest,
    api_version: int,
    *,
    required: bool,
) -> VerificationGuard | ErrorCode | Deferred[VerificationGuard | ErrorCode]:
    """Verify the partition of `__consumer_offsets` to which TxnOffsetCommit is appended (Kafka's
    CoordinatorPartitionWriter). Return the guard to append with, or an error."""

    def outcome(verification: TransactionVerification) -> VerificationGuard | ErrorCode:
        error = verification.errors.get((partition.topic, partition.index))
        return verification.guards[partition.topic, partition.index] if error is None else error

    verification = verify(
        manager,
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(partition, NO_SEQUENCE)],
        TransactionSupportedOperation.of_txn_offset_commit(api_version),
        required=required,
    )
    return verification.map(outcome) if isinstance(verification, Deferred) else outcome(verification)
