"""Metadata (key 3): brokers, topics by name or id, and the leader of each partition.

Versions: v1 has racks and the controller, v4 `allow_auto_topic_creation`, v5 offline replicas, v7 leader epochs, v8
authorized operations (KIP-430), v9 is flexible, v10 has topic ids (KIP-516), v12 looks topics up by id, v13 has an
error of the whole request.
Behaviour: creates a missing topic if client and broker allow it (`auto.create.topics.enable`). A request to a broker
that has no metadata yet waits for up to five seconds.
Differences from Kafka: the response describes an auto-created topic, where Kafka responds UNKNOWN_TOPIC_OR_PARTITION
and the client sends the request again. A Kafka broker without metadata responds immediately, without brokers or topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context, authorized_operations
from odradek_broker.apis.slices import Sliced, Slices, finish_in_slices, run_in_slices
from odradek_broker.metadata.topic_creation import create_missing
from odradek_broker.metadata.view import (
    AUTHORIZED_OPERATIONS_OMITTED,
    INTERNAL_TOPICS,
    brokers_on,
    controller_id_for_clients,
    offline_replicas,
    partition_error,
)
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_controller.commands.topic_names import invalid_topic_name
from odradek_controller.image import NO_LEADER, ClusterImage, TopicImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.uuid import ZERO_UUID

MetadataResponseTopic = MetadataResponse.MetadataResponseTopic

SLICE = 100
"""Topics that are described, or created, in one slice; and partitions of a topic."""
FIRST_METADATA_WAIT_MS = 5_000
"""How long a request waits for a new broker's first metadata before it gets an empty response."""


def handle(ctx: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse] | Sliced:
    broker = ctx.broker
    return _handle(ctx, request) if broker.has_metadata else _after_first_metadata(ctx, request)


async def _after_first_metadata(ctx: Context, request: MetadataRequest) -> MetadataResponse:
    """Wait for the first metadata. A client that receives no brokers and no topics, as from a Kafka broker, drops its
    own metadata, or does not refresh it for a long time."""
    broker = ctx.broker
    first_metadata = broker.purgatory.watch(
        [broker.first_metadata_watchers], lambda: broker.has_metadata or None, lambda: False, FIRST_METADATA_WAIT_MS
    )
    try:
        await first_metadata
    finally:
        first_metadata.cancel()  # the client may have disconnected
    result = _handle(ctx, request)
    if isinstance(result, Sliced):
        return await result.response  # type: ignore[no-any-return]
    return result if isinstance(result, MetadataResponse) else await result


def _handle(ctx: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse] | Sliced:
    topics = request.topics
    # Version 0 had no null: an empty list meant all topics.
    if topics is None or (ctx.api_version == 0 and not topics):
        names = [name for name in sorted(ctx.broker.image.topics) if ctx.may_topic(Operation.DESCRIBE, name)]
        return run_in_slices(_respond(ctx, request, names, []))
    # The schema has ids from version 10 on, but Kafka looks topics up by id only from 12 on (KIP-516).
    if ctx.api_version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
        return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    by_id, names, refused = _resolve(ctx, topics)
    missing = [name for name in names if name not in ctx.broker.image.topics]
    if missing and request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics:
        return _create_and_respond(ctx, request, names, missing, by_id, refused)
    return run_in_slices(_respond(ctx, request, names, [*by_id, *refused]))


async def _create_and_respond(
    ctx: Context,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    by_id: list[MetadataResponseTopic],
    refused: list[MetadataResponseTopic],
) -> MetadataResponse:
    may_create = ctx.may_cluster(Operation.CREATE)
    allowed = [name for name in missing if may_create or ctx.may_topic(Operation.CREATE, name)]
    denied = [
        MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        for name in missing
        if name not in allowed
    ]
    errors = await create_missing(ctx.broker, allowed)
    failures = [MetadataResponseTopic(error_code=error, name=name) for name, error in errors.items() if error]
    left_out = {topic.name for topic in (*failures, *denied)}
    names = [name for name in names if name not in left_out]
    return await finish_in_slices(_respond(ctx, request, names, [*by_id, *failures, *denied, *refused]))


def _resolve(
    ctx: Context, topics: Iterable[MetadataRequest.MetadataRequestTopic]
) -> tuple[list[MetadataResponseTopic], list[str], list[MetadataResponseTopic]]:
    """Return the topics with an unknown id, the names to describe, without repetition, and the refused topics."""
    unknown: list[MetadataResponseTopic] = []
    names: dict[str, None] = {}
    refused: list[MetadataResponseTopic] = []
    for topic in topics:
        if topic.topic_id != ZERO_UUID:
            image = ctx.broker.image.topics_by_id.get(topic.topic_id)
            if image is None:
                unknown.append(
                    MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id)
                )
            elif ctx.may_topic(Operation.DESCRIBE, image.name):
                names[image.name] = None
            else:
                refused.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic.topic_id
                    )
                )
        elif topic.name is not None:
            if ctx.may_topic(Operation.DESCRIBE, topic.name):
                names[topic.name] = None
            else:
                refused.append(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=topic.name))
    return unknown, list(names), refused


def _respond(
    ctx: Context, request: MetadataRequest, names: list[str], others: list[MetadataResponseTopic]
) -> Generator[int, None, MetadataResponse]:
    """Describe the topics with these names, all from one image, and add the others."""
    image = ctx.broker.image
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations and ctx.api_version <= 10:
        # 0 without the permission to describe the cluster, as in DescribeCluster.
        allowed = ctx.may_cluster(Operation.DESCRIBE)
        operations = authorized_operations(ctx, ResourceType.CLUSTER) if allowed else 0
    described = []
    for name in names:
        described.append((yield from _topic(ctx, request, image, name)))
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(broker.id, broker.host, broker.port, broker.rack)
            for broker in brokers_on(image, ctx.listener)
        ],
        cluster_id=image.cluster_id,
        controller_id=controller_id_for_clients(image),
        topics=described + others,
        cluster_authorized_operations=operations,
    )


def _topic(
    ctx: Context, request: MetadataRequest, image: ClusterImage, name: str
) -> Generator[int, None, MetadataResponseTopic]:
    found = image.topics.get(name)
    if found is None:
        yield 1
        invalid = invalid_topic_name(name) is not None
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
    topic = MetadataResponseTopic(name=name, topic_id=found.id, is_internal=name in INTERNAL_TOPICS)
    for start in range(0, len(found.partitions), SLICE):
        partitions = _partitions(ctx, image, found, start)
        topic.partitions += partitions
        yield len(partitions)
    if request.include_topic_authorized_operations:
        topic.topic_authorized_operations = authorized_operations(ctx, ResourceType.TOPIC, name)
    return topic


def _partitions(
    ctx: Context, image: ClusterImage, topic: TopicImage, start: int
) -> list[MetadataResponse.MetadataResponsePartition]:
    """Describe the partitions of one slice, which begins at `start`."""
    listener = ctx.listener
    described = []
    for index, partition in enumerate(topic.partitions[start : start + SLICE], start):
        error = partition_error(image, partition, listener)
        replicas, isr = list(partition.replicas), list(partition.isr)
        offline = offline_replicas(image, partition, listener)
        if ctx.api_version == 0:
            # Version 0 lists live replicas only, with an error if that leaves some out.
            shown = [replica for replica in replicas if replica not in offline]
            if not error and len(shown) < len(replicas):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, isr = shown, [replica for replica in isr if replica not in offline]
        elif error == ErrorCode.LISTENER_NOT_FOUND and ctx.api_version < 6:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        unavailable = error in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND)
        described.append(
            MetadataResponse.MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=NO_LEADER if unavailable else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline,
            )
        )
    return described


def error_response(ctx: Context, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    """Return a response with the error in every topic, and from version 13 also for the whole request."""
    return MetadataResponse(
        topics=[
            # Before version 12 a topic without a name cannot be expressed.
            MetadataResponseTopic(
                error_code=error,
                name=topic.name if ctx.api_version >= 12 else topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ],
        error_code=error,
    )


API = Api(
    MetadataRequest,
    MetadataResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", elements=SLICE),
)
