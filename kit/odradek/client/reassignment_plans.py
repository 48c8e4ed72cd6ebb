"""Reassignment plans: made from a cluster's state, or read from the JSON of `kafka-reassign-partitions`.

Pure functions; `reassignments` sends a plan to the controller.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.client.cluster_state import ClusterState, PartitionInfo
from odradek.client.reassignments import TopicPartition

ReassignmentPlan = Mapping[TopicPartition, Sequence[int]]
"""The target replicas of each partition, the preferred leader first."""

_FORMAT = 1
_ANY_DIRECTORY = "any"


class ReassignmentPlanError(ValueError):
    """A plan that cannot be made or read; the message is one line."""


def plan_to_move(
    partitions: Sequence[PartitionInfo], brokers: Sequence[int], replicas: int | None = None
) -> dict[TopicPartition, list[int]]:
    """Plan to move each partition to all of `brokers`, or to `replicas` of them.

    The brokers take turns as the first replica, so that each becomes the preferred leader of its share. Raises
    ReassignmentPlanError for more replicas than brokers.
    """
    count = len(brokers) if replicas is None else replicas
    if not 0 < count <= len(brokers):
        raise ReassignmentPlanError(f"{count} replicas need at least {count} brokers, got {len(brokers)}")
    return {
        (partition.topic, partition.index): [brokers[(turn + each) % len(brokers)] for each in range(count)]
        for turn, partition in enumerate(partitions)
    }


def plan_to_drain(state: ClusterState, broker: int) -> dict[TopicPartition, list[int]]:
    """Plan to move every replica of `broker` to a running broker that has no replica of the partition.

    Prefers a rack without a replica of the partition, then the broker with the fewest replicas. The new replica takes
    the position of the old one. Raises ReassignmentPlanError for a partition that no other running broker can take.
    """
    load = Counter(replica for partition in state.partitions for replica in partition.replicas)
    plan = {}
    for partition in state.partitions:
        if broker not in partition.replicas:
            continue
        kept = [replica for replica in partition.replicas if replica != broker]
        successor = _successor(state, load, kept, broker)
        if successor is None:
            raise ReassignmentPlanError(
                f"{partition} cannot leave broker {broker}: every other running broker already has a replica of it"
            )
        load[successor] += 1
        plan[partition.topic, partition.index] = [
            successor if replica == broker else replica for replica in partition.replicas
        ]
    return plan


def _successor(state: ClusterState, load: Counter[int], kept: Iterable[int], leaving: int) -> int | None:
    kept = set(kept)
    racks = {state.brokers[replica].rack for replica in kept if replica in state.brokers} - {None}
    free = [broker for broker in state.brokers.values() if broker.id not in kept and broker.id != leaving]
    if not free:
        return None
    return min(free, key=lambda broker: (broker.rack in racks, load[broker.id], broker.id)).id


def plan_from_json(text: str) -> dict[TopicPartition, list[int]]:
    """Read a plan from the JSON of `kafka-reassign-partitions`.

    Raises ReassignmentPlanError for a malformed plan, and for one that moves replicas between log directories.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReassignmentPlanError(f"not JSON: {error}") from error
    match document:
        case {"version": version, "partitions": [*entries]} if version == _FORMAT:
            pass
        case _:
            raise ReassignmentPlanError('a plan must have the form {"version": 1, "partitions": [...]}')
    plan: dict[TopicPartition, list[int]] = {}
    for entry in entries:
        partition, replicas = _entry(entry)
        if partition in plan:
            raise ReassignmentPlanError(f"the plan names {partition[0]}-{partition[1]} twice")
        plan[partition] = replicas
    if not plan:
        raise ReassignmentPlanError("the plan names no partition")
    return plan


def _entry(entry: Any) -> tuple[TopicPartition, list[int]]:
    match entry:
        case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if (
            replicas
            and all(isinstance(replica, int) for replica in replicas)
            and isinstance(directories := entry.get("log_dirs") or [], list)
        ):
            if any(directory != _ANY_DIRECTORY for directory in directories):
                raise ReassignmentPlanError(
                    f"{topic}-{index} names log_dirs: use kafka-reassign-partitions to move between log directories"
                )
            return (topic, index), list(replicas)
    raise ReassignmentPlanError(
        'each of "partitions" must have the form {"topic": "t", "partition": 0, "replicas": [1, 2]},'
        f" got {json.dumps(entry)}"
    )


def plan_as_json(plan: ReassignmentPlan) -> str:
    """Write a plan as JSON in one line, as Kafka's tool does."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [_ANY_DIRECTORY] * len(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": _FORMAT, "partitions": partitions}, ensure_ascii=False)
