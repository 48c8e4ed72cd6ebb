"""OffsetDelete (key 47): an admin client deletes offsets of a group (KIP-496).

Versions: only v0.
Behaviour: the coordinator keeps the offsets of topics to which the group subscribes (GROUP_SUBSCRIBED_TO_TOPIC). The
response comes when the tombstones for the others are replicated.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

OffsetDeleteRequestTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
TopicResponse = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionResponse = OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    if not ctx.may_group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[TopicResponse] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        _check_topic(ctx, topic, accepted, refused)
    request.topics = accepted
    response = ctx.broker.group_coordinator.delete_offsets(request)
    if not isinstance(response, Deferred):
        return _merged(refused, response)
    return response.map(lambda deleted: _merged(refused, deleted))


def _check_topic(
    ctx: Context,
    topic: OffsetDeleteRequestTopic,
    accepted: list[OffsetDeleteRequestTopic],
    refused: list[TopicResponse],
) -> None:
    indexes = [partition.partition_index for partition in topic.partitions]
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refused(topic.name, indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    known = ctx.broker.image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    missing = [index for index in indexes if not 0 <= index < count]
    if missing:
        refused.append(_refused(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(refused: list[TopicResponse], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """Return a top-level error alone; else merge the responses, refused topics first, as in Kafka."""
    if response.error_code:
        return OffsetDeleteResponse(error_code=response.error_code)
    if not refused:
        return response
    topics = {topic.name: topic for topic in refused}
    for topic in response.topics:
        merged = topics.setdefault(topic.name, topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return OffsetDeleteResponse(topics=list(topics.values()))


def _refused(name: str, indexes: list[int], error: ErrorCode) -> TopicResponse:
    return TopicResponse(name=name, partitions=[PartitionResponse(index, error) for index in indexes])


API = Api(OffsetDeleteRequest, OffsetDeleteResponse, handle)
