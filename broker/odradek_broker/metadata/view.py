"""The metadata as clients see it: brokers by listener, partitions with their errors.

Owns the translation that Metadata, DescribeTopicPartitions and DescribeCluster share. Leaves the state to the image.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_controller.image import LOST_DIRECTORY, ClusterImage, PartitionRegistration
from odradek_wire.errors import ErrorCode

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
AUTHORIZED_OPERATIONS_OMITTED = -(1 << 31)
"""The authorized operations in a response to a request that does not ask for them."""


class BrokerEndpoint(NamedTuple):
    """A broker as clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def brokers_on(image: ClusterImage, listener: str, *, fenced: bool = False) -> list[BrokerEndpoint]:
    """Return the brokers that have this listener, by id; fenced ones only with `fenced`."""
    found = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener)
        if endpoint is not None and (fenced or not broker.fenced):
            found.append(BrokerEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
    return found


def controller_id_for_clients(image: ClusterImage) -> int:
    """Return the controller id for clients: in ZooKeeper mode the controller's, otherwise the id of a live broker, as
    in KRaft, because brokers forward requests to the controller."""
    if image.controller_id is not None:
        return image.controller_id if image.controller_id in image.brokers else -1
    return next((broker.id for broker in image.live_brokers()), -1)


def partition_error(image: ClusterImage, partition: PartitionRegistration, listener: str) -> ErrorCode:
    """Return the error of a partition in Metadata responses."""
    leader = image.brokers.get(partition.leader)
    if leader is None or leader.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE


def offline_replicas(image: ClusterImage, partition: PartitionRegistration, listener: str) -> list[int]:
    """Return the replicas on brokers that are unregistered, fenced or not on this listener, and on failed disks."""
    lost = LOST_DIRECTORY in partition.directories
    return [
        replica
        for replica in partition.replicas
        if (broker := image.brokers.get(replica)) is None
        or broker.fenced
        or broker.endpoint(listener) is None
        or (lost and partition.directory(replica) == LOST_DIRECTORY)
    ]
