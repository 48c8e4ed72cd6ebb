"""OffsetDelete (key 47): a group forgets offsets of topics that it does not subscribe to (KIP-496)."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
TopicAnswer = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionAnswer = OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    if not ctx.may_group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[TopicAnswer] = []
    accepted: list[Topic] = []
    for topic in request.topics:
        _sort_out(ctx, topic, accepted, refused)
    request.topics = accepted
    answer = ctx.broker.groups.delete_offsets(request)
    if not isinstance(answer, Deferred):
        return _merged(refused, answer)
    return answer.map(lambda deleted: _merged(refused, deleted))


def _sort_out(ctx: Context, topic: Topic, accepted: list[Topic], refused: list[TopicAnswer]) -> None:
    indexes = [partition.partition_index for partition in topic.partitions]
    if not ctx.may_topic(Operation.READ, topic.name):
        refused.append(_refusal(topic.name, indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    known = ctx.broker.image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    missing = [index for index in indexes if not 0 <= index < count]
    if missing:
        refused.append(_refusal(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    if topic.partitions:
        accepted.append(topic)


def _merged(refused: list[TopicAnswer], answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """An error of the group is the whole answer; else what was refused comes first, as in Kafka."""
    if answer.error_code:
        return OffsetDeleteResponse(error_code=answer.error_code)
    if not refused:
        return answer
    topics = {topic.name: topic for topic in refused}
    for topic in answer.topics:
        there = topics.setdefault(topic.name, topic)
        if there is not topic:
            there.partitions.extend(topic.partitions)
    return OffsetDeleteResponse(topics=list(topics.values()))


def _refusal(name: str, indexes: list[int], error: ErrorCode) -> TopicAnswer:
    return TopicAnswer(name=name, partitions=[PartitionAnswer(index, error) for index in indexes])


API = Api(OffsetDeleteRequest, OffsetDeleteResponse, handle)
