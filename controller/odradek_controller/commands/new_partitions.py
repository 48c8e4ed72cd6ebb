"""The records of new partitions: their first ISR, leader and log directories."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.uuid import Uuid

from ..image import RECOVERED, UNASSIGNED_DIRECTORY, BrokerRegistration, ClusterImage
from ..placement import UsableBroker
from .context import Refusal

MAX_PARTITIONS_PER_REQUEST = 10_000
TOO_MANY = Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def usable_brokers(image: ClusterImage) -> list[UsableBroker]:
    """Return the brokers that can get replicas: not in controlled shutdown, with a log directory that is not cordoned.

    A fenced broker does not count as in controlled shutdown (Kafka's BrokerHeartbeatManager)."""
    return [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in image.brokers.values()
        if (broker.fenced or not broker.in_controlled_shutdown) and not _all_cordoned(broker)
    ]


def _all_cordoned(broker: BrokerRegistration) -> bool:
    return bool(broker.directories) and set(broker.directories) <= set(broker.cordoned_log_dirs)


def partition_record(
    image: ClusterImage, topic_id: Uuid, index: int, replicas: Sequence[int]
) -> PartitionRecord | Refusal:
    """Return the record of a new partition: its ISR is all active replicas, and the first of them leads."""
    isr = [broker for broker in replicas if image.is_active(broker)]
    if not isr:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_recovery_state=RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, broker) for broker in replicas]
        if image.levels.directory_assignment
        else [],
    )


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Return the log directory of a broker that has only one; a broker with several chooses one and reports it."""
    broker = image.brokers.get(broker_id)
    if broker is None or len(broker.directories) != 1:
        return UNASSIGNED_DIRECTORY
    return broker.directories[0]
