"""The ports through which a broker reaches its cluster. The embedded controller and ZooKeeper each have their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from odradek_broker.metadata.controller_channel import ControllerChannel
from odradek_broker.metadata.source import MetadataSource
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message


class ControlRequests(Protocol):
    """Handles requests between the brokers of a cluster with ZooKeeper. The controller sends LeaderAndIsr,
    UpdateMetadata and StopReplica; brokers send AlterPartition, AllocateProducerIds and ControlledShutdown to the
    broker that is the controller."""

    async def handle(self, request: Message) -> Any:
        """Return the response. Raises NotControllerError for a request to the controller if that is another broker."""
        ...


class VersionZeroOffsets(Protocol):
    """Offsets that groups commit and fetch with version 0, which Kafka keeps apart from those of later versions."""

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> ErrorCode: ...

    async def fetch(self, group: str, topic: str, partition: int) -> tuple[ErrorCode, int]:
        """Return the error and the committed offset, -1 with an error."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """The ports of one broker. An optional port is None if the kind of cluster has no such thing."""

    source: MetadataSource
    channel: ControllerChannel
    control_requests: ControlRequests | None = None
    """With this port the broker serves inter-broker APIs on its inter-broker and control-plane listeners."""
    version_zero_offsets: VersionZeroOffsets | None = None
    notify_log_dir_failure: Callable[[], None] | None = None
    """Called after replicas went offline because of a disk error, if the controller does not learn of that by
    AssignReplicasToDirs."""
