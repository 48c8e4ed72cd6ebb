"""OffsetFetch (key 9): the offsets that groups have committed.

Versions: v0 reads from ZooKeeper; v2 can ask for all topics and has a top-level error; v7 can wait for open
transactions (KIP-447); v8 has several groups (KIP-709); v9 names the member (KIP-848); v10 names topics by id.
Behaviour: v0 is refused without ZooKeeper, as by Kafka. With require_stable, the response waits for pending writes.
Differences from Kafka: while `__consumer_offsets` does not exist, every group has no offsets; Kafka returns
NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import groupby

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS, Slice, Slices
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster_ports import VersionZeroOffsets
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

GROUP_ERROR_FROM = 2
BATCH_FROM = 8
TOPIC_ID_FROM = 10

OffsetFetchRequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup
OffsetFetchRequestTopics = OffsetFetchRequest.OffsetFetchRequestTopics
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicResponse = OffsetFetchResponse.OffsetFetchResponseTopics
PartitionResponse = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if ctx.api_version == 0:
        offsets = ctx.broker.version_zero_offsets
        if offsets is None:
            return error_response(ctx, request, ErrorCode.UNSUPPORTED_VERSION)
        return _fetch_version_zero(ctx, offsets, request)
    group_responses: list[GroupResponse] = []
    for group in _groups(ctx, request):
        refused = _check_topics(ctx, group)
        group_response = _fetch(ctx, group, request.require_stable)
        if isinstance(group_response, Deferred):
            return _handle_deferred(ctx, request)
        group_responses.append(_complete_group(ctx, group_response, refused))
    return _response(ctx, request, group_responses)


async def _fetch_version_zero(
    ctx: Context, offsets: VersionZeroOffsets, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Fetch one offset after the other, each from a znode of its own."""
    if not ctx.may_group(Operation.DESCRIBE, request.group_id):
        return error_response(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (group,) = _groups(ctx, request)
    refused = _check_topics(ctx, group)
    group_response = GroupResponse(group_id=group.group_id, topics=[])
    for topic in group.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            error, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
            if ctx.broker.image.partition(topic.name, index) is not None:
                error, offset = await offsets.fetch(group.group_id, topic.name, index)
            partitions.append(
                PartitionResponse(partition_index=index, committed_offset=offset, metadata="", error_code=error)
            )
        group_response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return _response(ctx, request, [_complete_group(ctx, group_response, refused)])


async def _handle_deferred(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Handle the request from its beginning, and wait for pending writes: `handle` has changed nothing."""
    group_responses: list[GroupResponse] = []
    for group in _groups(ctx, request):
        refused = _check_topics(ctx, group)
        group_response = _fetch(ctx, group, request.require_stable)
        group_responses.append(
            _complete_group(
                ctx, await group_response if isinstance(group_response, Deferred) else group_response, refused
            )
        )
    return _response(ctx, request, group_responses)


def error_response(ctx: Context, request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    group_responses = [GroupResponse(group_id=group.group_id, error_code=error) for group in _groups(ctx, request)]
    return _response(ctx, request, group_responses)


def _groups(ctx: Context, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    """Return copies of the requested groups in the form of v8, in every version; the caller may change them."""
    if ctx.api_version >= BATCH_FROM:
        return [OffsetFetchRequestGroup(g.group_id, g.member_id, g.member_epoch, g.topics) for g in request.groups]
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _check_topics(ctx: Context, group: OffsetFetchRequestGroup) -> list[TopicResponse]:
    """Complete names from ids. Remove unknown and unauthorized topics from `group`, and return their errors."""
    if group.topics is None:
        return []
    refused: list[TopicResponse] = []
    allowed: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        if ctx.api_version >= TOPIC_ID_FROM:
            known = ctx.broker.image.topics_by_id.get(topic.topic_id)
            if known is None:
                refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            topic = OffsetFetchRequestTopics(known.name, topic.topic_id, topic.partition_indexes)
        if ctx.may_topic(Operation.DESCRIBE, topic.name):
            allowed.append(topic)
        else:
            refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    group.topics = allowed
    return refused


def _fetch(
    ctx: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> GroupResponse | Deferred[GroupResponse]:
    if not ctx.may_group(Operation.DESCRIBE, group.group_id):
        return GroupResponse(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.group_coordinator.fetch_offsets(group, require_stable)


def _complete_group(ctx: Context, group_response: GroupResponse, refused: list[TopicResponse]) -> GroupResponse:
    """Complete the response of a group: add topic ids, and refused topics at the end, as in Kafka. A request for all
    topics may have found some that the client may not describe: remove them."""
    if group_response.error_code:
        return group_response
    topics = [topic for topic in group_response.topics if ctx.may_topic(Operation.DESCRIBE, topic.name)]
    if ctx.api_version >= TOPIC_ID_FROM:
        known = ctx.broker.image.topics
        topics = [topic for topic in topics if topic.name in known]
        for topic in topics:
            topic.topic_id = known[topic.name].id
    group_response.topics = topics + refused
    return group_response


def _response(ctx: Context, request: OffsetFetchRequest, group_responses: list[GroupResponse]) -> OffsetFetchResponse:
    if ctx.api_version >= BATCH_FROM:
        return OffsetFetchResponse(groups=group_responses)
    group_response = group_responses[0]
    if group_response.error_code and ctx.api_version < GROUP_ERROR_FROM:
        # The response has no top-level error: every partition gets it.
        error = ErrorCode(group_response.error_code)
        group_response.topics = [_refused(topic, error) for topic in _groups(ctx, request)[0].topics or []]
    return OffsetFetchResponse(
        error_code=group_response.error_code,
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
            for topic in group_response.topics
        ],
    )


def _refused(topic: OffsetFetchRequestTopics, error: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            PartitionResponse(partition_index=index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ],
    )


_TOPICS = Slices("topics", "topics", inner=("partition_indexes", "partitions"))


class _Divider:
    """Divides a long request by its topics: those of the only group (up to v7), or of each group."""

    elements = ELEMENTS
    undivided: int | None = None

    def divide(self, request: OffsetFetchRequest) -> Iterator[Slice]:
        if not request.groups:
            yield from _TOPICS.divide(request)
        for group in request.groups:
            for part, continues in _TOPICS.divide(group):
                yield OffsetFetchRequest(groups=[part], require_stable=request.require_stable), continues

    def join(self, responses: list[Slice]) -> OffsetFetchResponse:
        first: OffsetFetchResponse = responses[0][0]
        if not first.groups:
            joined: OffsetFetchResponse = _TOPICS.join(responses)
            return joined
        group_responses = [(response.groups[0], continues) for response, continues in responses]
        by_group = groupby(group_responses, lambda group_response: group_response[0].group_id)
        return OffsetFetchResponse(groups=[_TOPICS.join(list(parts)) for _, parts in by_group])


API = Api(
    OffsetFetchRequest,
    OffsetFetchResponse,
    handle,
    error_response=error_response,
    slices=_Divider(),
)
