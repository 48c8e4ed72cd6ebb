"""DescribeTopicPartitions (key 75): the partitions of many topics, page by page (KIP-966).

Versions: only v0.
Behaviour: a page has at most `max.request.partition.size.limit` partitions; the next page begins at `next_cursor`.
Partitions without eligible leader replicas have empty lists, never null, because the Java admin client in Spark fails
on null.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context, authorized_operations
from odradek_broker.apis.slices import Sliced, run_in_slices
from odradek_broker.metadata.view import INTERNAL_TOPICS, offline_replicas, partition_error
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_controller.commands.topic_names import invalid_topic_name
from odradek_controller.image import NO_LEADER, ClusterImage, TopicImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse | Sliced:
    return run_in_slices(_respond(ctx, request))


def _respond(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> Generator[int, None, DescribeTopicPartitionsResponse]:
    image = ctx.broker.image
    everything = not request.topics
    names = sorted(image.topics if everything else {topic.name for topic in request.topics})
    start_of: dict[str, int] = {}
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            return _all(request, ErrorCode.INVALID_REQUEST)
        names = [name for name in names if name >= cursor.topic_name]
        start_of[cursor.topic_name] = cursor.partition_index
    refused = dict.fromkeys(name for name in names if not ctx.may_topic(Operation.DESCRIBE, name))
    response = DescribeTopicPartitionsResponse()
    room = max(min(request.response_partition_limit, ctx.broker.config.integer("max.request.partition.size.limit")), 1)
    for name in names:
        if name in refused:
            continue
        if not room:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(name, 0)
            break
        found = image.topics.get(name)
        if found is None:
            response.topics.append(_unknown(ctx, name))
            yield 1
            continue
        start = start_of.get(name, 0)
        end = min(start + room, len(found.partitions))
        response.topics.append(_topic(ctx, image, found, start, end))
        yield 1 + max(end - start, 0)
        room -= max(end - start, 0)
        if end < len(found.partitions):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(name, end)
            break
    if not everything:
        response.topics.extend(
            TopicResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name) for name in refused
        )
    return response


def _topic(ctx: Context, image: ClusterImage, topic: TopicImage, start: int, end: int) -> TopicResponse:
    partitions = []
    for index in range(start, end):
        partition = topic.partitions[index]
        error = partition_error(image, partition, ctx.listener)
        partitions.append(
            PartitionResponse(
                error_code=error,
                partition_index=index,
                leader_id=NO_LEADER if error else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=offline_replicas(image, partition, ctx.listener),
            )
        )
    return TopicResponse(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, topic.name),
    )


def _unknown(ctx: Context, name: str) -> TopicResponse:
    invalid = invalid_topic_name(name) is not None
    return TopicResponse(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, name),
    )


def _all(request: DescribeTopicPartitionsRequest, error: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[TopicResponse(error_code=error, name=topic.name) for topic in request.topics]
    )


def error_response(
    ctx: Context, request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return _all(request, error)


API = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, handle, error_response=error_response)
