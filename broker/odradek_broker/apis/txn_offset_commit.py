"""TxnOffsetCommit (key 28): what a producer's transaction has read, to count once it is committed (KIP-98).

v2 has leader epochs (KIP-320), v3 names the member that has read (KIP-447). Up to v4 the transaction must have been
told of the group (AddOffsetsToTxn), from v5 on it need not (KIP-890). Before v4 no client knows TRANSACTION_ABORTABLE.
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
"""Clients before it do not know the error, and end (KAFKA-7296)."""

Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
Answer = TxnOffsetCommitResponse | ErrorCode


def handle(
    ctx: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return failed(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may_group(Operation.READ, request.group_id):
        return failed(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[TopicAnswer] = []
    accepted: list[Topic] = []
    for topic in request.topics:
        _sort_out(ctx, topic, accepted, refused)
    if not accepted:
        return TxnOffsetCommitResponse(topics=refused)
    request.topics = accepted
    answer = ctx.broker.groups.commit_transactional_offsets(request, ctx.api_version)
    if not isinstance(answer, Deferred):
        return _merged(ctx, refused, request, answer)
    return answer.map(lambda committed: _merged(ctx, refused, request, committed))


def failed(ctx: Context, request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition: the response has no other place for it."""
    return TxnOffsetCommitResponse(topics=[_refusal(topic, error) for topic in request.topics])


def _sort_out(ctx: Context, topic: Topic, accepted: list[Topic], refused: list[TopicAnswer]) -> None:
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refusal(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    known = ctx.broker.image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
    if missing:
        unknown = [PartitionAnswer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in missing]
        refused.append(TopicAnswer(topic.name, unknown))
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(
    ctx: Context, refused: list[TopicAnswer], request: TxnOffsetCommitRequest, answer: Answer
) -> TxnOffsetCommitResponse:
    """What was refused comes first, as in Kafka; a topic that is there already gets its other partitions added."""
    if isinstance(answer, TxnOffsetCommitResponse):
        answered: Iterable[TopicAnswer] = answer.topics
    else:
        answered = [_refusal(topic, _known(ctx, answer)) for topic in request.topics]
    topics = {topic.name: topic for topic in refused}
    for topic in answered:
        there = topics.setdefault(topic.name, topic)
        if there is not topic:
            there.partitions.extend(topic.partitions)
    return TxnOffsetCommitResponse(topics=list(topics.values()))


def _known(ctx: Context, error: ErrorCode) -> ErrorCode:
    loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if loading and ctx.api_version < LOAD_IN_PROGRESS_FROM else error


def _refusal(topic: Topic, error: ErrorCode) -> TopicAnswer:
    return TopicAnswer(
        topic.name, [PartitionAnswer(partition.partition_index, error) for partition in topic.partitions]
    )


API = Api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    handle,
    failed=failed,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
