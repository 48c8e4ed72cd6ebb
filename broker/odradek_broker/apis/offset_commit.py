"""OffsetCommit (key 8): a group remembers how far it has read.

Up to v4 a client may ask for a retention of its own, v6 has leader epochs (KIP-320), v7 static members (KIP-345), v10
names topics by id (KIP-848). Version 0 keeps offsets in ZooKeeper; as in Kafka without ZooKeeper it is refused there.
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

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
TopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionAnswer = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return failed(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    unsupported = failed(ctx, request, ErrorCode.UNSUPPORTED_VERSION) if ctx.api_version == 0 else None
    refused: list[TopicAnswer] = []
    accepted: list[Topic] = []
    for topic in request.topics:
        _sort_out(ctx, topic, accepted, refused)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    if unsupported is not None:
        offsets = ctx.broker.version_zero_offsets
        return unsupported if offsets is None else _commit_version_zero(ctx, offsets, request, refused)
    answer = ctx.broker.groups.commit_offsets(request, ctx.api_version)
    if not isinstance(answer, Deferred):
        return _merged(refused, request, answer)
    return answer.map(lambda committed: _merged(refused, request, committed))


async def _commit_version_zero(
    ctx: Context, offsets: VersionZeroOffsets, request: OffsetCommitRequest, refused: list[TopicAnswer]
) -> OffsetCommitResponse:
    """Commit one offset after the other, each in a znode of its own."""
    size_max = ctx.broker.config.integer("offset.metadata.max.bytes")
    answered = []
    for topic in request.topics:
        answer = TopicAnswer(name=topic.name, partitions=[])
        answered.append(answer)
        for partition in topic.partitions:
            if len(partition.committed_metadata or "") > size_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                error = await offsets.commit(
                    request.group_id, topic.name, partition.partition_index, partition.committed_offset
                )
            answer.partitions.append(PartitionAnswer(partition.partition_index, error))
    return _merged(refused, request, OffsetCommitResponse(topics=answered))


def failed(ctx: Context, request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition: the response has no other place for it."""
    return OffsetCommitResponse(topics=[_refusal(topic, error) for topic in request.topics])


def _sort_out(ctx: Context, topic: Topic, accepted: list[Topic], refused: list[TopicAnswer]) -> None:
    """Complete name or id from the metadata; refuse what is not there."""
    image = ctx.broker.image
    by_id = ctx.api_version >= TOPIC_ID_FROM
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    if by_id and known is None:
        refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        return
    if known is not None:
        topic.name, topic.topic_id = known.name, known.id
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refusal(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    count = 0 if known is None else len(known.partitions)
    missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
    if missing:
        unknown = [PartitionAnswer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in missing]
        refused.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=unknown))
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(
    refused: list[TopicAnswer], request: OffsetCommitRequest, answer: OffsetCommitResponse | ErrorCode
) -> OffsetCommitResponse:
    """What was refused comes first, as in Kafka; a topic that is there already gets its other partitions added."""
    if isinstance(answer, OffsetCommitResponse):
        answered: Iterable[TopicAnswer] = answer.topics
    else:
        answered = [_refusal(topic, answer) for topic in request.topics]
    if not refused:
        return OffsetCommitResponse(topics=list(answered))
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in answered:
        there = topics.setdefault((topic.name, topic.topic_id), topic)
        if there is not topic:
            there.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=list(topics.values()))


def _refusal(topic: Topic, error: ErrorCode) -> TopicAnswer:
    partitions = [PartitionAnswer(partition.partition_index, error) for partition in topic.partitions]
    return TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


API = Api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    handle,
    failed=failed,
    notes="v0 is refused without ZooKeeper, as by Kafka",
    slices=Slices("topics", "topics", inner=("partitions", "partitions")),
)
