"""AddPartitionsToTxn (key 24): add partitions to the open transaction before batches are written to them (KIP-98).

Versions: clients send v0 to v3, for one transaction. Brokers send v4 and later, for several transactions (KIP-890):
they add partitions for producers of transaction version 2, or only verify them (`verify_only`).
Behaviour: if the broker refuses one partition, it adds none; the others get OPERATION_NOT_ATTEMPTED.
Differences from Kafka: while the producer's previous transaction is not complete, Kafka returns CONCURRENT_TRANSACTIONS
immediately, and the client retries after some 20 ms. Here the response to a client waits for the completion, up to
`add.partitions.to.txn.retry.backoff.max.ms`. The response to a broker does not, because it is for several transactions;
the broker retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.view import INTERNAL_TOPICS
from odradek_broker.security.authorizer import Operation
from odradek_broker.security.authorizer import ResourceType as Resource
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

FIRST_VERSION_OF_BROKERS = 4
AddPartitionsToTxnTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
PartitionErrors = Mapping[TopicPartition, ErrorCode]


def handle(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if ctx.api_version >= FIRST_VERSION_OF_BROKERS:
        return _handle_batch(ctx, request)
    transaction = _transaction(request)
    errors = _handle_transaction(ctx, transaction)
    if not isinstance(errors, Deferred):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(errors))
    return errors.map(lambda added: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(added)))


def _handle_batch(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # All records are appended before the first one is replicated. The response waits for the slowest transaction, but
    # none of them waits for the markers of a previous transaction.
    errors_by_id = [(each.transactional_id, _handle_transaction(ctx, each)) for each in request.transactions]
    if any(isinstance(errors, Deferred) for _, errors in errors_by_id):
        return _when_all_done(errors_by_id)
    return _batch_response((name, errors) for name, errors in errors_by_id if not isinstance(errors, Deferred))


async def _when_all_done(
    errors_by_id: list[tuple[str, PartitionErrors | Deferred[PartitionErrors]]],
) -> AddPartitionsToTxnResponse:
    try:
        return _batch_response(
            [(name, await errors if isinstance(errors, Deferred) else errors) for name, errors in errors_by_id]
        )
    finally:
        for _, errors in errors_by_id:
            if isinstance(errors, Deferred):
                errors.cancel()


def _handle_transaction(
    ctx: Context, transaction: AddPartitionsToTxnTransaction
) -> PartitionErrors | Deferred[PartitionErrors]:
    """Return the error of each partition of one transaction."""
    transactional_id = transaction.transactional_id
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    by_client = ctx.api_version < FIRST_VERSION_OF_BROKERS
    if by_client and not ctx.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {partition: error for partition in partitions if (error := _error_of(ctx, partition, by_client))}
    if refused:
        return {partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    coordinator = ctx.broker.transaction_coordinator
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, partitions)
    added = coordinator.add_partitions(transactional_id, producer, partitions, ctx.api_version, may_wait=by_client)
    if not isinstance(added, Deferred):
        return dict.fromkeys(partitions, added)
    return added.map(lambda error: dict.fromkeys(partitions, error))


def _error_of(ctx: Context, partition: TopicPartition, by_client: bool) -> ErrorCode:
    topic, index = partition
    # Clients add `__consumer_offsets` by AddOffsetsToTxn only, and no other internal topic.
    if by_client and (topic in INTERNAL_TOPICS or not ctx.may_topic(Operation.WRITE, topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if ctx.broker.image.partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    """Return the transaction of a client's request."""
    return AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )


def _results(errors: PartitionErrors) -> list[TopicResult]:
    topics: dict[str, TopicResult] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, TopicResult(topic)).results_by_partition.append(PartitionResult(index, error))
    return list(topics.values())


def _batch_response(errors_by_id: Iterable[tuple[str, PartitionErrors]]) -> AddPartitionsToTxnResponse:
    row = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    return AddPartitionsToTxnResponse(
        results_by_transaction=[row(name, _results(errors)) for name, errors in errors_by_id]
    )


def error_response(ctx: Context, request: AddPartitionsToTxnRequest, error: ErrorCode) -> AddPartitionsToTxnResponse:
    if ctx.api_version >= FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error)
    partitions = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(dict.fromkeys(partitions, error)))


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle, error_response=error_response)
