"""AlterPartitionReassignments and ListPartitionReassignments. Each partition succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from .. import reassignment
from ..election import Election, partition_change_record
from ..image import ClusterImage, PartitionRegistration, TopicImage
from ..placement import PlacementError, check_assignment
from .context import CommandContext, Refusal
from .new_partitions import default_directory
from .policy import election_policy

ReassignablePartitionResponse = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingPartitionReassignment = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def alter_reassignments(
    image: ClusterImage,
    request: AlterPartitionReassignmentsRequest,
    context: CommandContext,
    *,
    allow_unregistered: bool = False,
) -> tuple[list[Message], AlterPartitionReassignmentsResponse]:
    """Start reassignments; null replicas cancel the reassignment in progress.

    With `allow_unregistered` a partition may keep a replica whose broker is not registered.
    """
    records: list[Message] = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            outcome = _reassign(image, topic.name, index, wanted.replicas, context, request, allow_unregistered)
            if isinstance(outcome, Refusal):
                results.append(ReassignablePartitionResponse(index, outcome.error, outcome.message))
            else:
                records += outcome
                results.append(ReassignablePartitionResponse(index, ErrorCode.NONE, None))
        response.responses.append(AlterPartitionReassignmentsResponse.ReassignableTopicResponse(topic.name, results))
    return records, response


def _reassign(
    image: ClusterImage,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    context: CommandContext,
    request: AlterPartitionReassignmentsRequest,
    allow_unregistered: bool,
) -> list[Message] | Refusal:
    topic = image.topics.get(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = image.partition(name, index)
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    policy = election_policy(image, name, context.layers(image))
    if replicas is None:
        if not partition.reassigning:
            return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        wanted, unclean = reassignment.cancel(partition)
        if unclean and not policy.unclean:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {name}:{index} because it would require an unclean leader "
                "election.",
            )
    else:
        known = set(image.brokers)
        if allow_unregistered:
            known.update(set(partition.replicas).difference(partition.adding_replicas))
        try:
            check_assignment(replicas, known, None)
        except PlacementError as error:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error))
        before = len(partition.replicas) - len(partition.adding_replicas)
        if not request.allow_replication_factor_change and len(replicas) != before:
            return Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {before} to {len(replicas)}",
            )
        wanted = reassignment.begin(partition, replicas, lambda broker: default_directory(image, broker))
        unclean = False
    record = partition_change_record(
        topic.id,
        index,
        partition,
        wanted,
        active=image.is_active,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        elr_enabled=image.levels.elr_enabled,
        min_isr=policy.min_isr,
        bump_leader_epoch=image.levels.bumps_leader_epoch,
    )
    return [] if record is None else [record]


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest, context: CommandContext
) -> tuple[list[Message], ListPartitionReassignmentsResponse]:
    """List the reassignments in progress of all topics, or of the requested ones; unknown topics are omitted."""
    response = ListPartitionReassignmentsResponse()
    requested: Iterable[tuple[TopicImage, Iterable[int]]]
    if request.topics is None:
        requested = ((topic, range(len(topic.partitions))) for topic in image.topics.values())
    else:
        requested = (
            (image.topics[topic.name], topic.partition_indexes)
            for topic in request.topics
            if topic.name in image.topics
        )
    for topic, indexes in requested:
        ongoing = [
            _ongoing(index, partition)
            for index in indexes
            if (partition := image.partition(topic.name, index)) is not None and partition.reassigning
        ]
        if ongoing:
            response.topics.append(ListPartitionReassignmentsResponse.OngoingTopicReassignment(topic.name, ongoing))
    return [], response


def _ongoing(index: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        index, list(partition.replicas), list(partition.adding_replicas), list(partition.removing_replicas)
    )
