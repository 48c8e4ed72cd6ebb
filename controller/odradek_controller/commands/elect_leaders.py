"""ElectLeaders and the balance of leaders: who was assigned first leads again; or somebody does, whatever is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek_wire.messages.partition_change_record import PartitionChangeRecord

from ..configs.effective import BrokerLayers
from ..election import Election, change
from ..image import NO_LEADER, ClusterImage, PartitionRegistration, TopicImage
from .policy import election_policy
from .settings import Refusal, Settings

PREFERRED = 0
UNCLEAN = 1

TopicResult = ElectLeadersResponse.ReplicaElectionResult
Result = ElectLeadersResponse.PartitionResult


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, settings: Settings
) -> tuple[list[Message], ElectLeadersResponse]:
    """Null asks for all partitions, and then only those are in the answer for which something had to be done."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return [], ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    layers = settings.layers(image)
    records: list[Message] = []
    by_topic: dict[str, list[Result]] = {}
    for name, index in _asked(image, request):
        done = _elect(image, name, index, request.election_type, layers)
        if isinstance(done, PartitionChangeRecord):
            records.append(done)
            result = Result(index, ErrorCode.NONE, None)
        elif done.error is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
            continue
        else:
            result = Result(index, done.error, done.message)
        by_topic.setdefault(name, []).append(result)
    return records, ElectLeadersResponse(
        replica_election_results=[TopicResult(name, results) for name, results in by_topic.items()]
    )


def _asked(image: ClusterImage, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for name, topic in image.topics.items():
            for index in range(len(topic.partitions)):
                yield name, index
    else:
        for asked in request.topic_partitions:
            for index in asked.partitions:
                yield asked.topic, index


def _elect(
    image: ClusterImage, name: str, index: int, election_type: int, layers: BrokerLayers
) -> PartitionChangeRecord | Refusal:
    topic = image.topics.get(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = image.partition(name, index)
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if election_type == PREFERRED:
        needed, impossible = _leads_elsewhere(partition), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        needed, impossible = partition.leader == NO_LEADER, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if not needed:
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    election = Election.PREFERRED if election_type == PREFERRED else Election.UNCLEAN
    record = _record(image, topic, index, partition, election, layers)
    return record or Refusal(impossible)


def balance(image: ClusterImage, settings: Settings) -> list[Message]:
    """Preferred leaders for every broker that leads too few of the partitions that are its own to lead.

    Too few: more than `leader.imbalance.per.broker.percentage` of them are led by others. 4.3 has no such setting, and
    tolerates none.
    """
    layers = settings.layers(image)
    allowed = settings.number(image, "leader.imbalance.per.broker.percentage") / 100
    own: defaultdict[int, int] = defaultdict(int)
    elsewhere: defaultdict[int, list[tuple[TopicImage, int, PartitionRegistration]]] = defaultdict(list)
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            own[preferred] += 1
            if _leads_elsewhere(partition):
                elsewhere[preferred].append((topic, index, partition))
    records: list[Message] = []
    for broker in sorted(elsewhere):
        if len(elsewhere[broker]) / own[broker] > allowed:
            found = (_record(image, *place, Election.PREFERRED, layers) for place in elsewhere[broker])
            records += [record for record in found if record is not None]
    return records


def _leads_elsewhere(partition: PartitionRegistration) -> bool:
    return partition.leader != partition.replicas[0]


def _record(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    election: Election,
    layers: BrokerLayers,
) -> PartitionChangeRecord | None:
    return change(
        topic.id,
        index,
        partition,
        active=image.is_active,
        election=election,
        eligible_leaders=image.levels.eligible_leaders,
        min_isr=election_policy(image, topic.name, layers).min_isr,
    )
