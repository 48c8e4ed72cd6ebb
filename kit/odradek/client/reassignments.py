"""Reassignments of replicas to other brokers: start, list, cancel and measure them through a `Client`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.client.cluster_state import NO_LEADER
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

TopicPartition = tuple[str, int]
"""A topic's name and the index of a partition."""


@dataclass(frozen=True)
class Reassignment:
    """A reassignment in progress; `replicas` has the old and the new replicas."""

    topic: str
    index: int
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]

    @property
    def target(self) -> list[int]:
        """The replicas after the reassignment."""
        return [replica for replica in self.replicas if replica not in self.removing]


def reassignments(client: Client) -> list[Reassignment]:
    """Return all reassignments in progress, sorted by topic and partition."""
    response = client.call_controller(
        ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse
    )
    if response.error_code != ErrorCode.NONE:
        raise KafkaError(response.error_code, "ListPartitionReassignments", response.error_message)
    return sorted(
        (
            Reassignment(topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in response.topics
            for each in topic.partitions
        ),
        key=lambda each: (each.topic, each.index),
    )


def reassign(client: Client, plan: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, KafkaError]:
    """Start the reassignments of a plan; None cancels one in progress. Return the errors of those that are refused."""
    by_topic: defaultdict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = defaultdict(list)
    for (topic, index), replicas in plan.items():
        wanted = None if replicas is None else list(replicas)
        by_topic[topic].append(AlterPartitionReassignmentsRequest.ReassignablePartition(index, wanted))
    request = AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(*each) for each in by_topic.items()]
    )
    response = client.call_controller(request, AlterPartitionReassignmentsResponse)
    if response.error_code != ErrorCode.NONE:
        raise KafkaError(response.error_code, "AlterPartitionReassignments", response.error_message)
    return {
        (topic.name, each.partition_index): KafkaError(
            each.error_code, f"{topic.name}-{each.partition_index}", each.error_message
        )
        for topic in response.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    }


def copied_shares(
    client: Client, moves: Collection[Reassignment], leaders: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return, for each partition with new replicas, the share of its bytes that they have copied, from 0 to 1.

    Compares the sizes of the replicas' files with those of the leader's. A broker that does not respond counts as 0.
    """
    moves = [move for move in moves if move.adding]
    by_broker: defaultdict[int, set[TopicPartition]] = defaultdict(set)
    for move in moves:
        partition = (move.topic, move.index)
        for broker in {*move.adding, leaders.get(partition, NO_LEADER)} - {NO_LEADER}:
            by_broker[broker].add(partition)
    sizes = {broker: _sizes(client, broker, partitions) for broker, partitions in by_broker.items()}
    shares = {}
    for move in moves:
        partition = (move.topic, move.index)
        size_of_leader = sizes.get(leaders.get(partition, NO_LEADER), {}).get(partition, 0)
        new_sizes = [sizes[broker].get(partition, 0) for broker in move.adding]
        whole = size_of_leader * len(new_sizes)
        shares[partition] = min(sum(new_sizes) / whole, 1.0) if whole else 0.0
    return shares


def _sizes(client: Client, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    request = DescribeLogDirsRequest(
        [DescribeLogDirsRequest.DescribableLogDirTopic(*each) for each in by_topic.items()]
    )
    try:
        response = client.call_broker(broker, request, DescribeLogDirsResponse)
    except ClientError:
        return {}
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
