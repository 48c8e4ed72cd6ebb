"""ElectLeaders, preferred or unclean, and the periodic election of preferred leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek_wire.messages.partition_change_record import PartitionChangeRecord

from ..configs.effective import BrokerLayers
from ..election import Election, partition_change_record
from ..image import NO_LEADER, ClusterImage, PartitionRegistration, TopicImage
from .context import CommandContext, Refusal
from .policy import election_policy

PREFERRED = 0
UNCLEAN = 1
_NOT_NEEDED = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_IMPOSSIBLE = {
    PREFERRED: Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
}

ReplicaElectionResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, context: CommandContext
) -> tuple[list[Message], ElectLeadersResponse]:
    """Elect leaders. A request for all partitions (null) gets results only for those that needed an election."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return [], _unknown_type(request)
    layers = context.layers(image)
    records: list[Message] = []
    response = ElectLeadersResponse()
    for name, indexes in _requested_partitions(image, request):
        topic_result = ReplicaElectionResult(name)
        for index in indexes:
            outcome = _elect(image, name, index, request.election_type, layers)
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
                topic_result.partition_result.append(PartitionResult(index, ErrorCode.NONE, None))
            elif outcome is not _NOT_NEEDED or request.topic_partitions is not None:
                topic_result.partition_result.append(PartitionResult(index, outcome.error, outcome.message))
        response.replica_election_results.append(topic_result)
    return records, response


def _unknown_type(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Return the error for the request and for every requested partition."""
    error, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            ReplicaElectionResult(topic.topic, [PartitionResult(index, error, message) for index in topic.partitions])
            for topic in request.topic_partitions or ()
        ],
    )


def _requested_partitions(image: ClusterImage, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        for name, topic in image.topics.items():
            yield name, range(len(topic.partitions))
    else:
        for requested in request.topic_partitions:
            yield requested.topic, requested.partitions


def _elect(
    image: ClusterImage, name: str, index: int, election_type: int, layers: BrokerLayers
) -> PartitionChangeRecord | Refusal:
    topic = image.topics.get(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = image.partition(name, index)
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    needed = _is_led_elsewhere(partition) if election_type == PREFERRED else partition.leader == NO_LEADER
    if not needed:
        return _NOT_NEEDED
    election = Election.PREFERRED if election_type == PREFERRED else Election.UNCLEAN
    record = _record(image, topic, index, partition, election, layers)
    return record or _IMPOSSIBLE[election_type]


def balance(image: ClusterImage, context: CommandContext) -> list[Message]:
    """Elect the preferred leader of partitions whose preferred broker has too large an imbalance.

    The imbalance is the share of a broker's preferred partitions that other brokers lead;
    `leader.imbalance.per.broker.percentage` limits it. Kafka 4.3 has no such setting, and its limit is 0.
    """
    layers = context.layers(image)
    allowed = context.number(image, "leader.imbalance.per.broker.percentage") / 100
    preferred_counts: defaultdict[int, int] = defaultdict(int)
    led_elsewhere: defaultdict[int, list[tuple[TopicImage, int, PartitionRegistration]]] = defaultdict(list)
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferred_counts[preferred] += 1
            if _is_led_elsewhere(partition):
                led_elsewhere[preferred].append((topic, index, partition))
    records: list[Message] = []
    for broker in sorted(led_elsewhere):
        if len(led_elsewhere[broker]) / preferred_counts[broker] > allowed:
            for topic, index, partition in led_elsewhere[broker]:
                record = _record(image, topic, index, partition, Election.PREFERRED, layers)
                if record is not None:
                    records.append(record)
    return records


def _is_led_elsewhere(partition: PartitionRegistration) -> bool:
    return partition.leader != partition.replicas[0]


def _record(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    election: Election,
    layers: BrokerLayers,
) -> PartitionChangeRecord | None:
    return partition_change_record(
        topic.id,
        index,
        partition,
        active=image.is_active,
        election=election,
        elr_enabled=image.levels.elr_enabled,
        min_isr=election_policy(image, topic.name, layers).min_isr,
        bump_leader_epoch=image.levels.bumps_leader_epoch,
    )
