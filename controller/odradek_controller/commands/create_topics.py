"""CreateTopics: validates names, counts, assignments and configurations as Kafka's controller does."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.uuid import Uuid, random_uuid

from ..configs.effective import BrokerLayers, ConfigSource
from ..configs.table import Resource, definitions
from ..image import ClusterImage
from ..placement import PlacementError, check_assignment, place
from .context import CommandContext, PlainTopicEntries, Refusal
from .new_partitions import MAX_PARTITIONS_PER_REQUEST, TOO_MANY, partition_record, usable_brokers
from .topic_configs import check_topic_configs
from .topic_names import METADATA_TOPIC, check_collision, check_topic_name

CreatableTopic = CreateTopicsRequest.CreatableTopic
CreatableTopicResult = CreateTopicsResponse.CreatableTopicResult
CreatableTopicConfigs = CreateTopicsResponse.CreatableTopicConfigs


class Created(NamedTuple):
    """A valid topic with its records."""

    topic_id: Uuid
    replicas: list[list[int]]
    records: list[Message]


def create_topics(
    image: ClusterImage, request: CreateTopicsRequest, context: CommandContext
) -> tuple[list[Message], CreateTopicsResponse]:
    """Create each valid topic; an invalid one does not stop the others. With `validate_only` return no records.

    The results of the metadata topic and of duplicate names come last.
    """
    layers = context.layers(image)
    defaults = (int(layers.value("num.partitions") or 1), int(layers.value("default.replication.factor") or 1))
    too_many = _partitions(request, defaults[0]) > MAX_PARTITIONS_PER_REQUEST
    times = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    last_results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        refusal = TOO_MANY if too_many else _check_names(image, topic.name)
        outcome = refusal or _create(image, topic, context, layers, defaults)
        if isinstance(outcome, Refusal):
            (last_results if topic.name == METADATA_TOPIC else results).append(_refused(topic.name, outcome))
            continue
        records += outcome.records
        results.append(_created(topic, outcome, layers, context.plain_topics))
    repeated = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    last_results += [_refused(name, repeated) for name, count in times.items() if count > 1]
    return ([] if request.validate_only else records), CreateTopicsResponse(topics=results + last_results)


def _partitions(request: CreateTopicsRequest, default: int) -> int:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == -1 else max(topic.num_partitions, 0)
    return total


def _check_names(image: ClusterImage, name: str) -> Refusal | None:
    if name == METADATA_TOPIC:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    refusal = check_topic_name(name)
    if refusal is None and name in image.topics:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    return refusal or check_collision(name, image.topics)


def _create(
    image: ClusterImage, topic: CreatableTopic, context: CommandContext, layers: BrokerLayers, defaults: tuple[int, int]
) -> Created | Refusal:
    overrides = {config.name: config.value for config in topic.configs}
    refusal = check_topic_configs(overrides, layers, image.levels)
    if refusal is not None:
        return refusal
    replicas = _assigned(image, topic) if topic.assignments else _placed(image, topic, context, defaults)
    if isinstance(replicas, Refusal):
        return replicas
    topic_id = _new_topic_id(image, context)
    records: list[Message] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(Resource.TOPIC, topic.name, name, value) for name, value in overrides.items()]
    for index, brokers in enumerate(replicas):
        record = partition_record(image, topic_id, index, brokers)
        if isinstance(record, Refusal):
            return record
        records.append(record)
    return Created(topic_id, replicas, records)


def _new_topic_id(image: ClusterImage, context: CommandContext) -> Uuid:
    topic_id = random_uuid(context.randbytes)
    while topic_id in image.topics_by_id:
        topic_id = random_uuid(context.randbytes)
    return topic_id


def _assigned(image: ClusterImage, topic: CreatableTopic) -> list[list[int]] | Refusal:
    """Return a manual assignment: partitions from 0 without gaps, all with as many replicas as the first."""
    if topic.replication_factor != -1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, list[int]] = {}
    expected = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        try:
            check_assignment(assignment.broker_ids, image.brokers, expected)
        except PlacementError as error:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error))
        expected = len(assignment.broker_ids)
        found[index] = assignment.broker_ids
    if sorted(found) != list(range(len(found))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[index] for index in range(len(found))]


def _placed(
    image: ClusterImage, topic: CreatableTopic, context: CommandContext, defaults: tuple[int, int]
) -> list[list[int]] | Refusal:
    if topic.replication_factor != -1 and topic.replication_factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions != -1 and topic.num_partitions <= 0:
        return Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions = defaults[0] if topic.num_partitions == -1 else topic.num_partitions
    factor = defaults[1] if topic.replication_factor == -1 else topic.replication_factor
    try:
        return place(usable_brokers(image), range(partitions), factor, context.randbelow)
    except PlacementError as error:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {error}"
        )


def _refused(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.error, error_message=refusal.message)


def _created(
    topic: CreatableTopic, created: Created, layers: BrokerLayers, plain: PlainTopicEntries
) -> CreatableTopicResult:
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    entries = layers.topic_entries(overrides) if overrides else plain.of(layers)
    internal = [name for name in overrides if definitions(Resource.TOPIC, layers.release)[name].internal]
    configs = [
        CreatableTopicConfigs(entry.name, entry.value, False, entry.create_topics_source, False) for entry in entries
    ]
    configs += [CreatableTopicConfigs(name, overrides[name], False, ConfigSource.TOPIC, False) for name in internal]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=len(created.replicas),
        replication_factor=len(created.replicas[0]),
        configs=configs,
    )
