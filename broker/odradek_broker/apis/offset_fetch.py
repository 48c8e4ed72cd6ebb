"""OffsetFetch (key 9): how far did the group read?

Up to v7 one group, from v8 on many (KIP-709). v2 may ask for all topics and has an error for the group, v7 may wait for
open commits (KIP-447), v10 names topics by id (KIP-848). Version 0 reads from ZooKeeper, and is refused without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import groupby

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS, Part, Slices
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster_ports import VersionZeroOffsets
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

GROUP_ERROR_FROM = 2
BATCH_FROM = 8
TOPIC_ID_FROM = 10

Group = OffsetFetchRequest.OffsetFetchRequestGroup
Topic = OffsetFetchRequest.OffsetFetchRequestTopics
GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup
TopicAnswer = OffsetFetchResponse.OffsetFetchResponseTopics
PartitionAnswer = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if ctx.api_version == 0:
        offsets = ctx.broker.version_zero_offsets
        if offsets is None:
            return failed(ctx, request, ErrorCode.UNSUPPORTED_VERSION)
        return _fetch_version_zero(ctx, offsets, request)
    answers: list[GroupAnswer] = []
    for group in _groups(ctx, request):
        refused = _sort_out(ctx, group)
        answer = _fetch(ctx, group, request.require_stable)
        if isinstance(answer, Deferred):
            return _handle_waiting(ctx, request)
        answers.append(_visible(ctx, answer, refused))
    return _response(ctx, request, answers)


async def _fetch_version_zero(
    ctx: Context, offsets: VersionZeroOffsets, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Fetch one offset after the other, each from a znode of its own."""
    if not ctx.may_group(Operation.DESCRIBE, request.group_id):
        return failed(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (group,) = _groups(ctx, request)
    refused = _sort_out(ctx, group)
    answer = GroupAnswer(group_id=group.group_id, topics=[])
    for topic in group.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            error, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
            if ctx.broker.image.partition(topic.name, index) is not None:
                error, offset = await offsets.fetch(group.group_id, topic.name, index)
            partitions.append(
                PartitionAnswer(partition_index=index, committed_offset=offset, metadata="", error_code=error)
            )
        answer.topics.append(TopicAnswer(name=topic.name, partitions=partitions))
    return _response(ctx, request, [_visible(ctx, answer, refused)])


async def _handle_waiting(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The same when commits are under way; asking again is cheap and changes nothing."""
    answers: list[GroupAnswer] = []
    for group in _groups(ctx, request):
        refused = _sort_out(ctx, group)
        answer = _fetch(ctx, group, request.require_stable)
        answers.append(_visible(ctx, await answer if isinstance(answer, Deferred) else answer, refused))
    return _response(ctx, request, answers)


def failed(ctx: Context, request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    answers = [GroupAnswer(group_id=group.group_id, error_code=error) for group in _groups(ctx, request)]
    return _response(ctx, request, answers)


def _groups(ctx: Context, request: OffsetFetchRequest) -> list[Group]:
    """The groups asked for in the shape of v8, whatever the version; fresh objects, which may be changed."""
    if ctx.api_version >= BATCH_FROM:
        return [Group(g.group_id, g.member_id, g.member_epoch, g.topics) for g in request.groups]
    topics = None
    if request.topics is not None:
        topics = [Topic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics]
    return [Group(group_id=request.group_id, topics=topics)]


def _sort_out(ctx: Context, group: Group) -> list[TopicAnswer]:
    """Complete names from ids and leave what may be asked in `group`; returns the answers for what may not."""
    if group.topics is None:
        return []
    refused: list[TopicAnswer] = []
    allowed: list[Topic] = []
    for topic in group.topics:
        if ctx.api_version >= TOPIC_ID_FROM:
            known = ctx.broker.image.topics_by_id.get(topic.topic_id)
            if known is None:
                refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            topic = Topic(known.name, topic.topic_id, topic.partition_indexes)
        if ctx.may_topic(Operation.DESCRIBE, topic.name):
            allowed.append(topic)
        else:
            refused.append(_refusal(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    group.topics = allowed
    return refused


def _fetch(ctx: Context, group: Group, require_stable: bool) -> GroupAnswer | Deferred[GroupAnswer]:
    if not ctx.may_group(Operation.DESCRIBE, group.group_id):
        return GroupAnswer(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.groups.fetch_offsets(group, require_stable)


def _visible(ctx: Context, answer: GroupAnswer, refused: list[TopicAnswer]) -> GroupAnswer:
    """Only topics that the client may know of, with their ids; what was refused comes last, as in Kafka."""
    if answer.error_code:
        return answer
    topics = [topic for topic in answer.topics if ctx.may_topic(Operation.DESCRIBE, topic.name)]
    if ctx.api_version >= TOPIC_ID_FROM:
        known = ctx.broker.image.topics
        topics = [topic for topic in topics if topic.name in known]
        for topic in topics:
            topic.topic_id = known[topic.name].id
    answer.topics = topics + refused
    return answer


def _response(ctx: Context, request: OffsetFetchRequest, answers: list[GroupAnswer]) -> OffsetFetchResponse:
    if ctx.api_version >= BATCH_FROM:
        return OffsetFetchResponse(groups=answers)
    answer = answers[0]
    if answer.error_code and ctx.api_version < GROUP_ERROR_FROM:
        # No place for an error of the group: every partition gets it.
        error = ErrorCode(answer.error_code)
        answer.topics = [_refusal(topic, error) for topic in _groups(ctx, request)[0].topics or []]
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


def _refusal(topic: Topic, error: ErrorCode) -> TopicAnswer:
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            PartitionAnswer(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ],
    )


_TOPICS = Slices("topics", "topics", inner=("partition_indexes", "partitions"))


class _Divider:
    """Up to version 7 one group is divided, from version 8 on each of several."""

    elements = ELEMENTS

    def divide(self, request: OffsetFetchRequest) -> Iterator[Part]:
        if not request.groups:
            yield from _TOPICS.divide(request)
        for group in request.groups:
            for part, continues in _TOPICS.divide(group):
                yield OffsetFetchRequest(groups=[part], require_stable=request.require_stable), continues

    def join(self, responses: list[Part]) -> OffsetFetchResponse:
        first: OffsetFetchResponse = responses[0][0]
        if not first.groups:
            joined: OffsetFetchResponse = _TOPICS.join(responses)
            return joined
        answers = [(response.groups[0], continues) for response, continues in responses]
        by_group = groupby(answers, lambda answer: answer[0].group_id)
        return OffsetFetchResponse(groups=[_TOPICS.join(list(parts)) for _, parts in by_group])


API = Api(
    OffsetFetchRequest,
    OffsetFetchResponse,
    handle,
    failed=failed,
    notes="v0 is refused without ZooKeeper, as by Kafka",
    slices=_Divider(),
)
