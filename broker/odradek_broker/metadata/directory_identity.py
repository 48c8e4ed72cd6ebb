"""The cluster and node that a log directory belongs to: compares `meta.properties`, and writes it if it is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_log.directory import LogDirectory
from odradek_log.foreign import joined_names
from odradek_log.log_errors import LogDirectoryError
from odradek_log.meta_properties import MetaProperties
from odradek_wire.uuid import Uuid, random_uuid, uuid_to_text


def cluster_id_of(directories: Iterable[LogDirectory], wanted: str | None, randbytes: Callable[[int], bytes]) -> str:
    """Return the id of the cluster that these directories belong to, as text; `wanted` or a new one if none has an id.

    Raises LogDirectoryError when they belong to different clusters, or to another than `wanted`."""
    metas = [directory.meta for directory in directories]
    clusters = {meta.cluster_id for meta in metas if meta is not None and meta.cluster_id}
    if len(clusters) > 1:
        raise LogDirectoryError(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")
    cluster_id = clusters.pop() if clusters else wanted or uuid_to_text(random_uuid(randbytes))
    if wanted and wanted != cluster_id:
        raise LogDirectoryError(f"the log directories belong to cluster {cluster_id}, not to {wanted}")
    return cluster_id


def refuse_partitions_without_identity(directories: Iterable[LogDirectory]) -> None:
    """Raise LogDirectoryError when no directory has `meta.properties` and one holds partitions: a new cluster would not
    know their topics. (Kafka in KRaft mode refuses any log directory without the file, KafkaRaftServer.)"""
    listed = list(directories)
    if any(directory.meta is not None for directory in listed):
        return
    for directory in listed:
        partitions = directory.partitions_on_disk()
        if partitions:
            raise LogDirectoryError(
                f"{directory.path} has no meta.properties, and holds the partitions {joined_names(partitions)}; put "
                "the meta.properties of their broker back, or use an empty directory"
            )


def ensure_meta_properties(
    directories: Iterable[LogDirectory], cluster_id: str, node_id: int, randbytes: Callable[[int], bytes]
) -> None:
    """Write `meta.properties` where it is missing. Raises LogDirectoryError, and writes none, when a directory belongs
    to another node."""
    listed = list(directories)
    for directory in listed:
        meta = directory.meta
        if meta is not None and meta.node_id not in (None, node_id):
            raise LogDirectoryError(f"{directory.path} belongs to node {meta.node_id}, this is node {node_id}")
    for directory in listed:
        if directory.meta is None or directory.meta.directory_id is None:
            directory.write_meta(MetaProperties(1, cluster_id, node_id, random_uuid(randbytes)))


def ensure_meta_properties_over_zookeeper(directories: Iterable[LogDirectory], cluster_id: str, broker_id: int) -> None:
    """Write `meta.properties` of version 0, as brokers have it in ZooKeeper mode, where it is missing or incomplete.
    Raises LogDirectoryError, and writes none, when a directory belongs to another broker or cluster, or to a cluster
    without ZooKeeper."""
    listed = list(directories)
    for directory in listed:
        meta = directory.meta
        if meta is None:
            continue
        if meta.version != 0:
            raise LogDirectoryError(
                f"{directory.path} has meta.properties of version {meta.version}: its cluster has no ZooKeeper"
            )
        if meta.node_id not in (None, broker_id):
            raise LogDirectoryError(f"{directory.path} belongs to broker {meta.node_id}, this is broker {broker_id}")
        if meta.cluster_id not in (None, cluster_id):
            raise LogDirectoryError(f"{directory.path} belongs to cluster {meta.cluster_id}, not to {cluster_id}")
    for directory in listed:
        meta = directory.meta
        if meta is None or meta.node_id is None or meta.cluster_id is None:
            directory.write_meta(MetaProperties(0, cluster_id, broker_id))


def directory_id_of(directory: LogDirectory) -> Uuid | None:
    """Return the directory's id; None in ZooKeeper mode."""
    meta = directory.meta
    return Uuid(meta.directory_id) if meta is not None and meta.directory_id else None
