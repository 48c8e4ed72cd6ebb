"""What a broker asks of its cluster's controller, wherever that is, and what other brokers ask of a broker.

Two ports. `ClusterController` is behind `broker.controller`: the controller of this process (`odradek_controller`), or
in ZooKeeper mode `zookeeper.remote_controller`. `InterBroker` is behind `broker.inter_broker`, in ZooKeeper mode only:
what the controller and the other brokers say on the inter-broker and control-plane listeners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_controller.levels import ApiRanges, Emulation
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from odradek_wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from odradek_wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from odradek_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
    from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from odradek_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from odradek_wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
    from odradek_wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
    from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class ClusterController(Protocol):
    """Every command may raise NotControllerError: the controller is another broker, which the client has to ask."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def emulation(self) -> Emulation: ...

    @property
    def refuses_expired(self) -> bool:
        """Whether a change with a `timeout_ms` of 0 or less is refused with REQUEST_TIMED_OUT, as by QuorumController.
        Over ZooKeeper it is made, and answered with that error, as by ZkAdminManager."""
        ...

    @property
    def apis(self) -> ApiRanges | None:
        """API key to versions of what is advertised to clients; None: all that is served."""
        ...

    def subscribe(self, listener: Callable[[MetadataDelta], None]) -> Callable[[], None]:
        """As `Controller.subscribe`."""
        ...

    # -- the broker's own affairs; these are answered wherever the controller is

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse: ...

    async def unfence_broker(self, broker_id: int) -> None: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Asked only where the levels have directory ids."""
        ...

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...

    # -- what clients ask

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse: ...

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse: ...

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse: ...

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse: ...

    def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse: ...

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse: ...

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse: ...

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse: ...

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse: ...

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse: ...

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse: ...


class OldOffsets(Protocol):
    """What groups have committed with version 0, which is kept apart from everything later."""

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> ErrorCode: ...

    async def fetch(self, group: str, topic: str, partition: int) -> tuple[ErrorCode, int]:
        """The offset; -1 with an error."""
        ...


class InterBroker(Protocol):
    """The answers to what only brokers ask each other, and what else only a broker of ZooKeeper mode has."""

    @property
    def old_offsets(self) -> OldOffsets: ...

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Raises NotControllerError, as the two that follow."""
        ...

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...

    def replicas_lost(self) -> None:
        """Some are served no more, by a log directory that has failed: the controller is to ask which."""
        ...

    async def create_missing(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """What this broker itself has to create, because a client has named it or a group needs it."""
        ...
