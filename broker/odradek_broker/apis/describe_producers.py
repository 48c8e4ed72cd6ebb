"""DescribeProducers (key 61): the active producers of partitions, and the start of their open transactions (KIP-664).

Versions: only v0.
Behaviour: only the leader describes a partition; other brokers respond NOT_LEADER_OR_FOLLOWER.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, Slices, run_in_slices
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

PartitionResponse = DescribeProducersResponse.PartitionResponse
ProducerState = DescribeProducersResponse.ProducerState


def handle(ctx: Context, request: DescribeProducersRequest) -> DescribeProducersResponse | Sliced:
    return run_in_slices(_respond(ctx, request))


def _respond(ctx: Context, request: DescribeProducersRequest) -> Generator[int, None, DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        topic_response = DescribeProducersResponse.TopicResponse(topic.name)
        response.topics.append(topic_response)
        for index in topic.partition_indexes:
            topic_response.partitions.append((yield from _describe(ctx, topic.name, index)))
            yield 1
    return response


def _describe(ctx: Context, topic: str, index: int) -> Generator[int, None, PartitionResponse]:
    if not ctx.may_topic(Operation.READ, topic):
        return PartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic not in ctx.broker.image.topics:
        return PartitionResponse(
            index,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    partition = ctx.broker.partitions.get(topic, index)
    if partition is None:
        exists = ctx.broker.image.partition(topic, index) is not None
        return PartitionResponse(
            index, ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if partition.error:
        return PartitionResponse(index, partition.error)
    response = PartitionResponse(index)
    for producer in list(partition.log.producers):
        response.active_producers.append(
            ProducerState(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                -1 if producer.current_txn_first_offset is None else producer.current_txn_first_offset,
            )
        )
        yield 1
    return response


def error_response(ctx: Context, request: DescribeProducersRequest, error: ErrorCode) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                topic.name, [PartitionResponse(index, error) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


API = Api(
    DescribeProducersRequest,
    DescribeProducersResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", inner=("partition_indexes", "partitions")),
)
