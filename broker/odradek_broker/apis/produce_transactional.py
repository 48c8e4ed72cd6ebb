"""Produce with transactional batches, which are verified before the append (ReplicaManager.handleProduceAppend).

A batch that begins a transaction in its partition waits until the transaction coordinator has verified that the
partition is part of the transaction, or has added it (Produce 12 and later, transaction version 2). Meanwhile the
connection handles no other request, so that batches stay in order. If the client disconnects, the batches are appended
nevertheless. Owns authorization, the wait and its retries. Leaves the append to `produce_append`, and verification to
`transactions.transaction_verification`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek_broker.apis.produce_append import FIRST_VERSION_WITH_IDS, error_response
from odradek_broker.apis.produce_in_slices import append_in_slices, hold_records
from odradek_broker.apis.produce_records import is_one_batch
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.transactions.add_partitions_to_txn_manager import TransactionSupportedOperation
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_broker.transactions.transaction_verification import VERIFICATION_ENABLE, TransactionVerification, verify
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.attributes import TRANSACTIONAL_BIT
from odradek_wire.records.batch import ATTRIBUTES_LOW_BYTE, HEADER_SIZE, MAGIC, MAGIC_POSITION, read_header

if TYPE_CHECKING:
    from odradek_broker.apis.context import Context
    from odradek_broker.replication.partition import Partition

HandlerResult = ProduceResponse | Deferred[ProduceResponse] | None
"""The result of a handler; None if there is no response (acks=0)."""

RETRY_BACKOFF_MS = "add.partitions.to.txn.retry.backoff.ms"
RETRY_MAX_MS = "add.partitions.to.txn.retry.backoff.max.ms"


def is_transactional(request: ProduceRequest) -> bool:
    """Return whether there are transactional batches. As in Kafka, only the first batch of each partition counts."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if (
                records
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT  # saves the call for most batches
                and is_transactional_batch(records)
            ):
                return True
    return False


def is_transactional_batch(records: Any) -> bool:
    return bool(
        records
        and len(records) >= HEADER_SIZE
        and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        and records[MAGIC_POSITION] == MAGIC
    )


class TransactionalBatch(NamedTuple):
    """A transactional batch, and the partition on this broker that it is for."""

    partition: Partition
    producer: Producer
    sequence: int


def handle(ctx: Context, request: ProduceRequest) -> HandlerResult:
    """Handle a request with a transactional id or transactional batches."""
    if not is_transactional(request):
        return append_in_slices(ctx, request)
    name = request.transactional_id
    if name is None or not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _refuse(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    batches = _batches(ctx, request)
    if len({batch.producer for batch in batches}) > 1:
        message = "Transactional records contained more than one producer ID"
        return _refuse(ctx, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    return _VerifiedProduce(ctx, request, batches).begin()


def _refuse(ctx: Context, request: ProduceRequest, error: ErrorCode, message: str | None = None) -> HandlerResult:
    """Refuse the whole request."""
    if request.acks == 0:
        ctx.connection.close()
    return error_response(ctx, request, error, message)


def _batches(ctx: Context, request: ProduceRequest) -> list[TransactionalBatch]:
    """Return the batches to verify, without those that `append` will refuse."""
    batches = []
    by_id = ctx.api_version >= FIRST_VERSION_WITH_IDS
    partitions = ctx.broker.partitions
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if not is_transactional_batch(records) or not is_one_batch(records):
                continue
            key: Any = topic.topic_id if by_id else topic.name
            partition = partitions.get_by_id(key, data.index) if by_id else partitions.get(key, data.index)
            if partition is None or not ctx.may_topic(Operation.WRITE, partition.topic):
                continue
            header = read_header(records)
            if header.producer_id >= 0:
                producer = Producer(header.producer_id, header.producer_epoch)
                batches.append(TransactionalBatch(partition, producer, header.base_sequence))
    return batches


class _VerifiedProduce:
    """One request: its batches are verified, then appended."""

    def __init__(self, ctx: Context, request: ProduceRequest, batches: list[TransactionalBatch]) -> None:
        self._ctx = ctx
        self._request = request
        self._batches = batches
        self._operation = TransactionSupportedOperation.of_produce(ctx.api_version)
        self._began_ms = ctx.now_ms
        self._appended = False
        self._outcome: HandlerResult = None
        self._response: Deferred[Any] | None = None
        self._held_bytes = 0

    def begin(self) -> HandlerResult:
        self._verify()
        if self._appended:
            return self._outcome
        self._held_bytes = hold_records(self._ctx, self._request)
        self._response = Deferred()
        return self._response

    def _verify(self) -> None:
        if not self._batches:
            return self._append(None)
        broker = self._ctx.broker
        assert self._request.transactional_id is not None
        verification = verify(
            broker.add_partitions_to_txn_manager,
            self._request.transactional_id,
            self._batches[0].producer,
            [(batch.partition, batch.sequence) for batch in self._batches],
            self._operation,
            required=broker.config.boolean(VERIFICATION_ENABLE),
        )
        if isinstance(verification, Deferred):
            return verification.when_done(lambda done: self._continue(lambda: self._verified(done.result())))
        return self._verified(verification)

    def _verified(self, verification: TransactionVerification) -> None:
        if self._operation.adds and ErrorCode.CONCURRENT_TRANSACTIONS in verification.errors.values():
            # The producer's previous transaction is about to complete: a retry by the broker costs less than one by the
            # client.
            broker = self._ctx.broker
            limit_ms = min(broker.config.integer(RETRY_MAX_MS), broker.config.integer("request.timeout.ms"))
            if self._ctx.now_ms - self._began_ms < limit_ms:
                backoff_ms = broker.config.integer(RETRY_BACKOFF_MS)
                broker.timers.call_later(backoff_ms, lambda: self._continue(self._verify))
                return
        self._append(verification)

    def _append(self, verification: TransactionVerification | None) -> None:
        held_bytes = None
        if self._response is not None:
            held_bytes, self._held_bytes = self._held_bytes, 0
        self._outcome = append_in_slices(self._ctx, self._request, verification, held_bytes)
        self._appended = True

    # -- while the client waits -----------------------------------------------------------------------------------

    def _continue(self, step: Callable[[], None]) -> None:
        response = self._response
        if response is None:  # `begin` has not returned yet, and will return the outcome
            return step()
        try:
            step()
        except Exception as error:
            self._release_records()
            return response.fail(error)
        if self._appended:
            response.follow(self._outcome)
        return None

    def _release_records(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        self._ctx.connection.memory.give_back(held)
