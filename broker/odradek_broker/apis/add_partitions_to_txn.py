"""AddPartitionsToTxn (key 24): partitions become part of the open transaction, before anything is written to them.

Up to version 3 a client asks, for its one transaction. From version 4 on brokers ask, for many at once (KIP-890): to
have partitions added for clients of transaction version 2, or only whether they have been (`verify_only`).

While the transaction before is being completed Kafka answers CONCURRENT_TRANSACTIONS at once, and whoever asked comes
again some 20 ms later. Here a client's answer waits for that, for `add.partitions.to.txn.retry.backoff.max.ms` at most.
A broker's does not: it is the answer for many transactions, and who asked waits by itself (`produce_transactional`).
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

BATCHED_FROM = 4
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Outcome = Mapping[TopicPartition, ErrorCode]


def handle(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if ctx.api_version >= BATCHED_FROM:
        return _handle_batch(ctx, request)
    transaction = _transaction(request)
    outcome = _handle_one(ctx, transaction)
    if not isinstance(outcome, Deferred):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(outcome))
    return outcome.map(lambda added: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(added)))


def _handle_batch(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return failed(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # All are begun at once, and replicated together. The answer to all waits for the slowest of them: none waits for
    # the markers of the transaction before, which may take long.
    outcomes = [(each.transactional_id, _handle_one(ctx, each)) for each in request.transactions]
    if any(isinstance(outcome, Deferred) for _, outcome in outcomes):
        return _when_all_are_done(outcomes)
    return _batch_response((name, outcome) for name, outcome in outcomes if not isinstance(outcome, Deferred))


async def _when_all_are_done(outcomes: list[tuple[str, Outcome | Deferred[Outcome]]]) -> AddPartitionsToTxnResponse:
    try:
        return _batch_response(
            [(name, await outcome if isinstance(outcome, Deferred) else outcome) for name, outcome in outcomes]
        )
    finally:
        for _, outcome in outcomes:
            if isinstance(outcome, Deferred):
                outcome.cancel()


def _handle_one(ctx: Context, transaction: Transaction) -> Outcome | Deferred[Outcome]:
    """The error of each partition of one transaction."""
    transactional_id = transaction.transactional_id
    places = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    by_client = ctx.api_version < BATCHED_FROM
    if by_client and not ctx.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(places, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {place: error for place in places if (error := _refusal(ctx, place, by_client))}
    if refused:
        # All or nothing: the others are told that they have not been tried.
        return {place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    coordinator = ctx.broker.transaction_coordinator
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, places)
    added = coordinator.add_partitions(transactional_id, producer, places, ctx.api_version, may_wait=by_client)
    if not isinstance(added, Deferred):
        return dict.fromkeys(places, added)
    return added.map(lambda error: dict.fromkeys(places, error))


def _refusal(ctx: Context, place: TopicPartition, by_client: bool) -> ErrorCode:
    topic, index = place
    # Who may write offsets of a group is asked elsewhere; other internal topics are no business of a client.
    if by_client and (topic in INTERNAL_TOPICS or not ctx.may_topic(Operation.WRITE, topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if ctx.broker.image.partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _transaction(request: AddPartitionsToTxnRequest) -> Transaction:
    """The one of a client."""
    return Transaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )


def _results(outcome: Outcome) -> list[TopicResult]:
    topics: dict[str, TopicResult] = {}
    for (topic, index), error in outcome.items():
        topics.setdefault(topic, TopicResult(topic)).results_by_partition.append(PartitionResult(index, error))
    return list(topics.values())


def _batch_response(outcomes: Iterable[tuple[str, Outcome]]) -> AddPartitionsToTxnResponse:
    row = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    return AddPartitionsToTxnResponse(
        results_by_transaction=[row(name, _results(outcome)) for name, outcome in outcomes]
    )


def failed(ctx: Context, request: AddPartitionsToTxnRequest, error: ErrorCode) -> AddPartitionsToTxnResponse:
    if ctx.api_version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(error_code=error)
    places = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(dict.fromkeys(places, error)))


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle, failed=failed)
