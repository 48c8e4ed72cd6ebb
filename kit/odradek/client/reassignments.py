"""Replicas that move to other brokers: begun, watched and ended, through a `Client`.

A plan says where the replicas of partitions shall be; its JSON is that of `kafka-reassign-partitions`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.client import Client
from odradek.exceptions import ClientError, KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Place = tuple[str, int]
"""A partition: topic and number."""
Plan = Mapping[Place, Sequence[int]]
"""The replicas that each partition shall have, who leads first."""

_FORMAT = 1
_ANYWHERE = "any"


class PlanError(ValueError):
    """What was given is no plan. The text is one line for a person."""


@dataclass(frozen=True)
class Reassignment:
    """One that is under way; `replicas` are the old and the new ones together."""

    topic: str
    index: int
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]

    @property
    def target(self) -> list[int]:
        """Where the replicas will be."""
        return [replica for replica in self.replicas if replica not in self.removing]


def reassignments(client: Client) -> list[Reassignment]:
    """All that are under way, in the order of topic and partition."""
    answer = client.call_controller(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(answer.error_code, "reassignments", answer.error_message)
    return sorted(
        (
            Reassignment(topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in answer.topics
            for each in topic.partitions
        ),
        key=lambda each: (each.topic, each.index),
    )


def reassign(client: Client, plan: Mapping[Place, Sequence[int] | None]) -> dict[Place, KafkaError]:
    """Begin the moves; None ends what is under way and goes back. Returns those that were refused."""
    by_topic: defaultdict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = defaultdict(list)
    for (topic, index), replicas in plan.items():
        wanted = None if replicas is None else list(replicas)
        by_topic[topic].append(AlterPartitionReassignmentsRequest.ReassignablePartition(index, wanted))
    request = AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(*each) for each in by_topic.items()]
    )
    answer = client.call_controller(request, AlterPartitionReassignmentsResponse)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(answer.error_code, "reassignment", answer.error_message)
    return {
        (topic.name, each.partition_index): KafkaError(
            each.error_code, f"{topic.name}-{each.partition_index}", each.error_message
        )
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    }


def copied(client: Client, moves: Collection[Reassignment], leaders: Mapping[Place, int]) -> dict[Place, float]:
    """How much of each partition the replicas that join it have: from 0 to 1, by the size of their files.

    A broker that does not answer has nothing.
    """
    moves = [move for move in moves if move.adding]
    asked: defaultdict[int, set[Place]] = defaultdict(set)
    for move in moves:
        place = (move.topic, move.index)
        for broker in {*move.adding, leaders.get(place, -1)} - {-1}:
            asked[broker].add(place)
    sizes = {broker: _sizes(client, broker, places) for broker, places in asked.items()}
    shares = {}
    for move in moves:
        place = (move.topic, move.index)
        whole = sizes.get(leaders.get(place, -1), {}).get(place, 0)
        there = [sizes[broker].get(place, 0) for broker in move.adding]
        shares[place] = min(sum(there) / (whole * len(there)), 1.0) if whole else 0.0
    return shares


def _sizes(client: Client, broker: int, places: Iterable[Place]) -> dict[Place, int]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(places):
        by_topic[topic].append(index)
    request = DescribeLogDirsRequest(
        [DescribeLogDirsRequest.DescribableLogDirTopic(*each) for each in by_topic.items()]
    )
    try:
        answer = client.call_node(broker, request, DescribeLogDirsResponse)
    except ClientError:
        return {}
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def plan_from_json(text: str) -> dict[Place, list[int]]:
    """Read Kafka's JSON; `PlanError` names what is wrong. A move to a particular folder of a broker is refused."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != _FORMAT:
        raise PlanError('a plan is of the form {"version": 1, "partitions": [...]}')
    plan: dict[Place, list[int]] = {}
    for entry in document.get("partitions", ()):
        place, replicas = _entry(entry)
        if place in plan:
            raise PlanError(f"{place[0]}-{place[1]} is there twice")
        plan[place] = replicas
    if not plan:
        raise PlanError("it names no partition")
    return plan


def _entry(entry: Any) -> tuple[Place, list[int]]:
    match entry:
        case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if replicas and all(
            isinstance(replica, int) for replica in replicas
        ):
            if any(folder != _ANYWHERE for folder in entry.get("log_dirs", ())):
                raise PlanError(f"{topic}-{index} names log_dirs; kafka-reassign-partitions moves between folders")
            return (topic, index), list(replicas)
    raise PlanError(f"{json.dumps(entry)} does not say topic, partition and replicas")


def plan_as_json(plan: Plan) -> str:
    """What `plan_from_json` and Kafka's tool read, in one line as that tool writes it."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [_ANYWHERE] * len(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": _FORMAT, "partitions": partitions}, ensure_ascii=False)
