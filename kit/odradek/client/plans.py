"""Where replicas had better be: plans made from what a person wants. Pure functions of the cluster's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from odradek.client.reassignments import Place, PlanError
from odradek.client.state import ClusterState, Partition


def moved_to(
    partitions: Sequence[Partition], brokers: Sequence[int], replicas: int | None = None
) -> dict[Place, list[int]]:
    """Each partition on `brokers`, or on so many of them.

    Several partitions begin with one broker after the other, so that each leads its share.
    """
    count = len(brokers) if replicas is None else replicas
    if not 0 < count <= len(brokers):
        raise PlanError(f"{count} replicas do not fit on {len(brokers)} brokers")
    return {
        (partition.topic, partition.index): [brokers[(turn + each) % len(brokers)] for each in range(count)]
        for turn, partition in enumerate(partitions)
    }


def drained(state: ClusterState, broker: int) -> dict[Place, list[int]]:
    """Every replica that `broker` has, on another one that runs and has none of that partition.

    First on a rack that has none of it, then on the broker with the fewest replicas. The new one takes the old one's
    place in the order.
    """
    load = Counter(replica for partition in state.partitions for replica in partition.replicas)
    plan = {}
    for partition in state.partitions:
        if broker not in partition.replicas:
            continue
        kept = [replica for replica in partition.replicas if replica != broker]
        successor = _successor(state, load, kept, broker)
        if successor is None:
            raise PlanError(f"{partition} has nowhere to go: every other broker that runs has a replica of it")
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
