"""OffsetFetch (key 9): the offsets that groups have committed.

Versions: v0 reads from ZooKeeper; v2 can ask for all topics and has a top-level error; v7 can wait for open
transactions (KIP-447); v8 has several groups (KIP-709); v9 names the member (KIP-848); v10 names topics by id.
Behaviour: v0 is refused without ZooKeeper, as by Kafka. With require_stable, the response waits for pending writes. A
response with all offsets of a group has those of one time, although a long one is made in slices.
Differences from Kafka: while `__consumer_offsets` does not exist, every group has no offsets; Kafka returns
NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterator
from itertools import groupby
from typing import Any

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS, Slice, Sliced, Slices, finish_in_slices, run_in_slices
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.offset_requests import FetchedOffsets
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


def handle(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse] | Sliced:
    if ctx.api_version == 0:
        offsets = ctx.broker.version_zero_offsets
        if offsets is None:
            return error_response(ctx, request, ErrorCode.UNSUPPORTED_VERSION)
        return _fetch_version_zero(ctx, offsets, request)
    fetches: list[tuple[FetchedOffsets | Deferred[FetchedOffsets], list[TopicResponse]]] = []
    for group in _groups(ctx, request):
        refused = _check_topics(ctx, group)
        fetches.append((_fetch(ctx, group, request.require_stable), refused))
    fetched = [(offsets, refused) for offsets, refused in fetches if not isinstance(offsets, Deferred)]
    if len(fetched) == len(fetches):
        return run_in_slices(_respond(ctx, request, fetched))
    return Sliced(_respond_when_stable(ctx, request, fetches))


async def _fetch_version_zero(
    ctx: Context, offsets: VersionZeroOffsets, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Fetch one offset after the other, each from a znode of its own."""
    if not ctx.may_group(Operation.DESCRIBE, request.group_id):
        return error_response(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (group,) = _groups(ctx, request)
    refused = _check_topics(ctx, group)
    topics = []
    for topic in group.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            error, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
            if ctx.broker.image.partition(topic.name, index) is not None:
                error, offset = await offsets.fetch(group.group_id, topic.name, index)
            partitions.append(
                PartitionResponse(partition_index=index, committed_offset=offset, metadata="", error_code=error)
            )
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    fetched = FetchedOffsets(GroupResponse(group_id=group.group_id), iter(topics))
    return await finish_in_slices(_respond(ctx, request, [(fetched, refused)]))


async def _respond_when_stable(
    ctx: Context,
    request: OffsetFetchRequest,
    fetches: list[tuple[FetchedOffsets | Deferred[FetchedOffsets], list[TopicResponse]]],
) -> OffsetFetchResponse:
    """Wait for the pending writes of each group."""
    fetched = [(await offsets if isinstance(offsets, Deferred) else offsets, refused) for offsets, refused in fetches]
    return await finish_in_slices(_respond(ctx, request, fetched))


def _respond(
    ctx: Context, request: OffsetFetchRequest, fetched: list[tuple[FetchedOffsets, list[TopicResponse]]]
) -> Generator[int, None, OffsetFetchResponse]:
    """Make the response of each group: with topic ids, without topics that the client may not describe (a request for
    all topics may have found some), and with the refused topics at the end, as in Kafka."""
    group_responses: list[GroupResponse] = []
    for offsets, refused in fetched:
        group_response, topics = offsets.group, []
        for topic in offsets.topics:
            if _complete_topic(ctx, topic):
                topics.append(_in_version(ctx, topic))
            yield 1 + len(topic.partitions)
        if not group_response.error_code:
            topics += [_in_version(ctx, topic) for topic in refused]
        group_response.topics = topics
        group_responses.append(group_response)
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
) -> FetchedOffsets | Deferred[FetchedOffsets]:
    if not ctx.may_group(Operation.DESCRIBE, group.group_id):
        return FetchedOffsets.failed(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.group_coordinator.fetch_offsets(group, require_stable)


def _complete_topic(ctx: Context, topic: TopicResponse) -> bool:
    """Set the topic's id; return whether the response may have the topic."""
    if not ctx.may_topic(Operation.DESCRIBE, topic.name):
        return False
    if ctx.api_version >= TOPIC_ID_FROM:
        known = ctx.broker.image.topics.get(topic.name)
        if known is None:
            return False
        topic.topic_id = known.id
    return True


def _in_version(ctx: Context, topic: TopicResponse) -> Any:
    """Return the topic in the form of the request's version."""
    if ctx.api_version >= BATCH_FROM:
        return topic
    return OffsetFetchResponse.OffsetFetchResponseTopic(
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


def _response(ctx: Context, request: OffsetFetchRequest, group_responses: list[GroupResponse]) -> OffsetFetchResponse:
    """Return the response of these groups, whose topics have the form of the version."""
    if ctx.api_version >= BATCH_FROM:
        return OffsetFetchResponse(groups=group_responses)
    (group_response,) = group_responses
    topics: list[Any] = group_response.topics
    if group_response.error_code and ctx.api_version < GROUP_ERROR_FROM:
        # The response has no top-level error: every partition gets it.
        error = ErrorCode(group_response.error_code)
        topics = [_in_version(ctx, _refused(topic, error)) for topic in _groups(ctx, request)[0].topics or []]
    return OffsetFetchResponse(error_code=group_response.error_code, topics=topics)


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

    def divide(self, request: OffsetFetchRequest) -> Iterator[Slice]:
        if not request.groups:
            yield from _TOPICS.divide(request)
        for group in request.groups:
            for part, continues in _TOPICS.divide(group):
                yield Slice(OffsetFetchRequest(groups=[part], require_stable=request.require_stable), continues)

    def join(self, responses: list[Slice]) -> OffsetFetchResponse:
        first: OffsetFetchResponse = responses[0].part
        if not first.groups:
            joined: OffsetFetchResponse = _TOPICS.join(responses)
            return joined
        group_responses = [Slice(response.groups[0], continues) for response, continues in responses]
        by_group = groupby(group_responses, lambda group_response: group_response.part.group_id)
        return OffsetFetchResponse(groups=[_TOPICS.join(list(parts)) for _, parts in by_group])


API = Api(
    OffsetFetchRequest,
    OffsetFetchResponse,
    handle,
    error_response=error_response,
    slices=_Divider(),
)
