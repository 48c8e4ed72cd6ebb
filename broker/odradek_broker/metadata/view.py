"""What clients see of the metadata: brokers by listener, partitions with their errors.

Owns the translation that Metadata, DescribeTopicPartitions and DescribeCluster have in common. Leaves the state to the
image of the controller.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_controller.image import LOST_DIRECTORY, ClusterImage, PartitionRegistration
from odradek_wire.errors import ErrorCode

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
OPERATIONS_NOT_ASKED = -(1 << 31)


class BrokerEndpoint(NamedTuple):
    """One broker as a client of one listener is told of it."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def brokers_on(image: ClusterImage, listener: str, *, fenced: bool = False) -> list[BrokerEndpoint]:
    """The brokers that have this listener, by id; fenced ones only when asked for."""
    found = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener)
        if endpoint is not None and (fenced or not broker.fenced):
            found.append(BrokerEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
    return found


def controller_shown(image: ClusterImage) -> int:
    """The id that clients take for the controller: in ZooKeeper mode the real one, otherwise as in KRaft any live
    broker, since brokers forward to the controller."""
    if image.controller_id is not None:
        return image.controller_id if image.controller_id in image.brokers else -1
    return next((broker.id for broker in image.live_brokers()), -1)


def partition_error(image: ClusterImage, partition: PartitionRegistration, listener: str) -> ErrorCode:
    """Why a client cannot use this partition now, as Metadata tells it."""
    leader = image.brokers.get(partition.leader)
    if leader is None or leader.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE


def offline_replicas(image: ClusterImage, partition: PartitionRegistration, listener: str) -> list[int]:
    """Replicas on brokers that are gone, fenced, or not on this listener; or on disks that have failed."""
    lost = LOST_DIRECTORY in partition.directories
    return [
        replica
        for replica in partition.replicas
        if (broker := image.brokers.get(replica)) is None
        or broker.fenced
        or broker.endpoint(listener) is None
        or (lost and partition.directory(replica) == LOST_DIRECTORY)
    ]
