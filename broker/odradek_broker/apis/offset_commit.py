"""OffsetCommit (key 8): a group commits offsets.

Versions: v0 commits in ZooKeeper; v2 to v4 have a retention time; v6 has leader epochs (KIP-320), v7 static members
(KIP-345), v10 topic ids in place of names (KIP-848).
Behaviour: the response comes when the offsets are replicated. Without ZooKeeper, v0 gets UNSUPPORTED_VERSION.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster_ports import VersionZeroOffsets
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

TOPIC_ID_FROM = 10

OffsetCommitRequestTopic = OffsetCommitRequest.OffsetCommitRequestTopic
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionResponse = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return error_response(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    # Before `_check_topic` removes partitions from the request.
    unsupported = error_response(ctx, request, ErrorCode.UNSUPPORTED_VERSION) if ctx.api_version == 0 else None
    refused: list[TopicResponse] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        _check_topic(ctx, topic, accepted, refused)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    if unsupported is not None:
        offsets = ctx.broker.version_zero_offsets
        return unsupported if offsets is None else _commit_version_zero(ctx, offsets, request, refused)
    outcome = ctx.broker.group_coordinator.commit_offsets(request, ctx.api_version)
    if not isinstance(outcome, Deferred):
        return _merged(refused, request, outcome)
    return outcome.map(lambda committed: _merged(refused, request, committed))


async def _commit_version_zero(
    ctx: Context, offsets: VersionZeroOffsets, request: OffsetCommitRequest, refused: list[TopicResponse]
) -> OffsetCommitResponse:
    """Commit one offset after the other, each in a znode of its own."""
    size_max = ctx.broker.config.integer("offset.metadata.max.bytes")
    responses = []
    for topic in request.topics:
        response = TopicResponse(name=topic.name, partitions=[])
        responses.append(response)
        for partition in topic.partitions:
            if len(partition.committed_metadata or "") > size_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                error = await offsets.commit(
                    request.group_id, topic.name, partition.partition_index, partition.committed_offset
                )
            response.partitions.append(PartitionResponse(partition.partition_index, error))
    return _merged(refused, request, OffsetCommitResponse(topics=responses))


def error_response(ctx: Context, request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Return the same error for every partition: the response has no top-level error."""
    return OffsetCommitResponse(topics=[_refused(topic, error) for topic in request.topics])


def _check_topic(
    ctx: Context,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[TopicResponse],
) -> None:
    """Complete the topic's name or id. Add the partitions that exist to `accepted`, if the client may read the topic,
    and errors for the others to `refused`."""
    image = ctx.broker.image
    by_id = ctx.api_version >= TOPIC_ID_FROM
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    if by_id and known is None:
        refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        return
    if known is not None:
        topic.name, topic.topic_id = known.name, known.id
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    count = 0 if known is None else len(known.partitions)
    missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
    if missing:
        unknown = [PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in missing]
        refused.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=unknown))
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(
    refused: list[TopicResponse], request: OffsetCommitRequest, outcome: OffsetCommitResponse | ErrorCode
) -> OffsetCommitResponse:
    """Merge the responses: refused topics come first, as in Kafka, with any accepted partitions of the same topic."""
    if isinstance(outcome, OffsetCommitResponse):
        responses: Iterable[TopicResponse] = outcome.topics
    else:
        responses = [_refused(topic, outcome) for topic in request.topics]
    if not refused:
        return OffsetCommitResponse(topics=list(responses))
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in responses:
        merged = topics.setdefault((topic.name, topic.topic_id), topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=list(topics.values()))


def _refused(topic: OffsetCommitRequestTopic, error: ErrorCode) -> TopicResponse:
    partitions = [PartitionResponse(partition.partition_index, error) for partition in topic.partitions]
    return TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


API = Api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
