"""TxnOffsetCommit (key 28): a producer commits a group's offsets in its transaction (KIP-98).

Versions: v2 has leader epochs (KIP-320), v3 names the member (KIP-447), clients know TRANSACTION_ABORTABLE from v4 on.
Before v5 the producer adds the group by AddOffsetsToTxn, from v5 on the group coordinator adds it (KIP-890).
Behaviour: the offsets are pending until the transaction ends.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

LOAD_IN_PROGRESS_FROM = 2
"""Older clients fail at COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

TxnOffsetCommitRequestTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle(
    ctx: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return error_response(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may_group(Operation.READ, request.group_id):
        return error_response(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[TopicResponse] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        _check_topic(ctx, topic, accepted, refused)
    if not accepted:
        return TxnOffsetCommitResponse(topics=refused)
    request.topics = accepted
    outcome = ctx.broker.group_coordinator.commit_transactional_offsets(request, ctx.api_version)
    if not isinstance(outcome, Deferred):
        return _merged(ctx, refused, request, outcome)
    return outcome.map(lambda committed: _merged(ctx, refused, request, committed))


def error_response(ctx: Context, request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """Return the same error for every partition: the response has no top-level error."""
    return TxnOffsetCommitResponse(topics=[_refused(topic, error) for topic in request.topics])


def _check_topic(
    ctx: Context,
    topic: TxnOffsetCommitRequestTopic,
    accepted: list[TxnOffsetCommitRequestTopic],
    refused: list[TopicResponse],
) -> None:
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    known = ctx.broker.image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
    if missing:
        unknown = [PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in missing]
        refused.append(TopicResponse(topic.name, unknown))
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(
    ctx: Context,
    refused: list[TopicResponse],
    request: TxnOffsetCommitRequest,
    outcome: TxnOffsetCommitResponse | ErrorCode,
) -> TxnOffsetCommitResponse:
    """Merge the responses: refused topics come first, as in Kafka, with any accepted partitions of the same topic."""
    if isinstance(outcome, TxnOffsetCommitResponse):
        responses: Iterable[TopicResponse] = outcome.topics
    else:
        responses = [_refused(topic, _for_version(ctx, outcome)) for topic in request.topics]
    topics = {topic.name: topic for topic in refused}
    for topic in responses:
        merged = topics.setdefault(topic.name, topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return TxnOffsetCommitResponse(topics=list(topics.values()))


def _for_version(ctx: Context, error: ErrorCode) -> ErrorCode:
    loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if loading and ctx.api_version < LOAD_IN_PROGRESS_FROM else error


def _refused(topic: TxnOffsetCommitRequestTopic, error: ErrorCode) -> TopicResponse:
    return TopicResponse(
        topic.name, [PartitionResponse(partition.partition_index, error) for partition in topic.partitions]
    )


API = Api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
