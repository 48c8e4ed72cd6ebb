"""CreatePartitions: adds partitions to a topic, with as many replicas as its partition 0 has."""

from __future__ import annotations

from collections import Counter

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

from ..image import ClusterImage, TopicImage
from ..placement import PlacementError, check_assignment, place
from .context import CommandContext, Refusal
from .new_partitions import MAX_PARTITIONS_PER_REQUEST, TOO_MANY, partition_record, usable_brokers

CreatePartitionsTopic = CreatePartitionsRequest.CreatePartitionsTopic
CreatePartitionsTopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, context: CommandContext
) -> tuple[list[Message], CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        outcome = _add_partitions(image, topic, context)
        if isinstance(outcome, Refusal):
            results.append(CreatePartitionsTopicResult(topic.name, outcome.error, outcome.message))
        else:
            records += outcome
            results.append(CreatePartitionsTopicResult(topic.name))
    return ([] if request.validate_only else records), CreatePartitionsResponse(results=results)


def _add_partitions(
    image: ClusterImage, request: CreatePartitionsTopic, context: CommandContext
) -> list[Message] | Refusal:
    topic = image.topics.get(request.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before = len(topic.partitions)
    more = request.count - before
    if more == 0:
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {before} partition(s).")
    if more < 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {before} partition(s); {request.count} would not be an increase.",
        )
    if more > MAX_PARTITIONS_PER_REQUEST:
        return TOO_MANY
    replicas = _replicas(image, topic, request, context)
    if isinstance(replicas, Refusal):
        return replicas
    records: list[Message] = []
    for index, brokers in enumerate(replicas, start=before):
        record = partition_record(image, topic.id, index, brokers)
        if isinstance(record, Refusal):
            return record
        records.append(record)
    return records


def _replicas(
    image: ClusterImage, topic: TopicImage, request: CreatePartitionsTopic, context: CommandContext
) -> list[list[int]] | Refusal:
    before = len(topic.partitions)
    more = request.count - before
    factor = len(topic.partitions[0].replicas)
    try:
        if request.assignments is None:
            return place(usable_brokers(image), range(before, request.count), factor, context.randbelow)
        if len(request.assignments) != more:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {more} additional partition(s), but only {len(request.assignments)} assignment(s) "
                "were specified.",
            )
        for assignment in request.assignments:
            check_assignment(assignment.broker_ids, image.brokers, factor)
        return [assignment.broker_ids for assignment in request.assignments]
    except PlacementError as error:
        manual = request.assignments is not None
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if manual else ErrorCode.INVALID_REPLICATION_FACTOR
        return Refusal(code, str(error))
