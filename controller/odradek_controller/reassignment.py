"""A partition on its way from some replicas to others.

Pure functions over a partition. While it is under way, a partition has the replicas it shall have, followed by those
it shall lose; `adding_replicas` and `removing_replicas` say which are which. It ends when all that are added are in
sync, or, where none is added, all that stay. Sources: KIP-455, and the answers of a running 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_wire.uuid import Uuid

from .image import PartitionRegistration

DirectoryOf = Callable[[int], Uuid]
"""Where a replica that is new on a broker goes."""


def begun(partition: PartitionRegistration, target: Sequence[int], directory_of: DirectoryOf) -> PartitionRegistration:
    """The partition that is to have the replicas of `target`, the preferred leader first.

    As in Kafka 4.3, what an earlier reassignment was still adding counts as a replica like any other, and is still
    named as added where this one adds nothing. There Kafka also keeps naming what is now to be removed, and where
    nothing is to be removed, what is now to stay: then a move never ends, or takes away what was asked for. We do not.
    """
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in partition.replicas))
    return with_replicas(partition, (*target, *removing), directory_of)._replace(
        adding_replicas=adding or tuple(replica for replica in partition.adding_replicas if replica in target),
        removing_replicas=removing,
    )


def finished(partition: PartitionRegistration) -> PartitionRegistration:
    """The partition without what it was to lose, if all that it waits for is in sync; else as it is."""
    if not partition.reassigning:
        return partition
    kept = tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.removing_replicas)
    if not isr or not set(partition.adding_replicas or kept) <= set(isr):
        return partition
    return with_replicas(partition, kept)._replace(isr=isr, adding_replicas=(), removing_replicas=())


def reverted(partition: PartitionRegistration) -> tuple[PartitionRegistration, bool]:
    """The partition without what it was to gain, and whether that may lose records: all that is in sync is new."""
    kept = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    back = with_replicas(partition, kept)._replace(isr=isr or kept[:1], adding_replicas=(), removing_replicas=())
    return back, not isr


def with_replicas(
    partition: PartitionRegistration, replicas: tuple[int, ...], directory_of: DirectoryOf | None = None
) -> PartitionRegistration:
    """Other replicas; each that stays keeps its directory."""
    if not partition.directories:
        return partition._replace(replicas=replicas)
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    directories = []
    for replica in replicas:
        directory = known.get(replica)
        if directory is None:
            assert directory_of is not None, "only a reassignment that begins brings new replicas"
            directory = directory_of(replica)
        directories.append(directory)
    return partition._replace(replicas=replicas, directories=tuple(directories))
