"""The reassignment of a partition to other replicas.

Pure functions over a partition. During a reassignment `replicas` has the target replicas, followed by those to remove
(`removing_replicas`). It completes when all `adding_replicas` are in sync, or, if it adds none, all target replicas.
Sources: KIP-455, and the responses of a running Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_wire.uuid import Uuid

from .image import PartitionRegistration

DirectoryOf = Callable[[int], Uuid]
"""Returns the log directory for a new replica on a broker."""


def begin(partition: PartitionRegistration, target: Sequence[int], directory_of: DirectoryOf) -> PartitionRegistration:
    """Return the partition with a reassignment to `target`, which has the preferred leader first.

    As in Kafka 4.3, replicas that an earlier reassignment is adding count as replicas of the partition; they stay in
    `adding_replicas` if this reassignment adds none. Unlike in Kafka 4.3, a replica that is not in `target` leaves
    `adding_replicas`, because the reassignment would otherwise never complete, and a replica in `target` leaves
    `removing_replicas`, because it would otherwise be removed.
    """
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in partition.replicas))
    return with_replicas(partition, (*target, *removing), directory_of)._replace(
        adding_replicas=adding or tuple(replica for replica in partition.adding_replicas if replica in target),
        removing_replicas=removing,
    )


def complete_if_in_sync(partition: PartitionRegistration) -> PartitionRegistration:
    """Return the partition without the replicas to remove if the reassignment can complete; otherwise unchanged."""
    if not partition.reassigning:
        return partition
    kept = tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.removing_replicas)
    if not isr or not set(partition.adding_replicas or kept) <= set(isr):
        return partition
    return with_replicas(partition, kept)._replace(isr=isr, adding_replicas=(), removing_replicas=())


def cancel(partition: PartitionRegistration) -> tuple[PartitionRegistration, bool]:
    """Return the partition without the adding replicas, and whether that may lose records because no other replica is
    in sync."""
    kept = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    reverted = with_replicas(partition, kept)._replace(isr=isr or kept[:1], adding_replicas=(), removing_replicas=())
    return reverted, not isr


def with_replicas(
    partition: PartitionRegistration, replicas: tuple[int, ...], directory_of: DirectoryOf | None = None
) -> PartitionRegistration:
    """Return the partition with these replicas; those that it already has keep their log directories."""
    if not partition.directories:
        return partition._replace(replicas=replicas)
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    directories = []
    for replica in replicas:
        directory = known.get(replica)
        if directory is None:
            assert directory_of is not None, "only `begin` adds replicas"
            directory = directory_of(replica)
        directories.append(directory)
    return partition._replace(replicas=replicas, directories=tuple(directories))
