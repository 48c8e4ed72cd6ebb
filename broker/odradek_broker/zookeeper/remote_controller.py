"""The cluster's controller as a broker of ZooKeeper mode sees it: here, in another process, or nowhere for a while.

Owns the way to it: a connection to the broker that `/controller` names, for what this broker needs itself. Clients are
not passed on: they are told NOT_CONTROLLER, and find the controller in the metadata. What the broker knows of the
cluster is the adapter's image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.logger import Logger
from odradek_broker.zookeeper.adapter import Adapter
from odradek_broker.zookeeper.config_writer import ConfigWriter
from odradek_controller.image import BrokerRegistration, ClusterImage, Endpoint, MetadataDelta
from odradek_controller.levels import Emulation, zookeeper_apis
from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper.controller import ZooKeeperController
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from odradek_wire.messages.alter_partition import AlterPartitionResponse
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from odradek_wire.messages.broker_registration import BrokerRegistrationResponse
from odradek_wire.messages.controlled_shutdown import ControlledShutdownResponse
from odradek_wire.messages.create_topics import CreateTopicsResponse
from odradek_wire.messages.elect_leaders import ElectLeadersResponse
from odradek_wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from odradek_wire.messages.update_features import UpdateFeaturesResponse
from odradek_wire.uuid import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
    from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from odradek_wire.messages.alter_partition import AlterPartitionRequest
    from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from odradek_wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from odradek_wire.messages.broker_registration import BrokerRegistrationRequest
    from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest
    from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from odradek_wire.messages.create_topics import CreateTopicsRequest
    from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from odradek_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from odradek_wire.messages.elect_leaders import ElectLeadersRequest
    from odradek_wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from odradek_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
    from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from odradek_wire.messages.update_features import UpdateFeaturesRequest

R = TypeVar("R", bound=Message)
Listener = Callable[[MetadataDelta], None]

ALTER_PARTITION_VERSION = 3
ALLOCATE_PRODUCER_IDS_VERSION = 0
CONTROLLED_SHUTDOWN_VERSION = 3
CREATE_TOPICS_VERSION = 7

_ELSEWHERE = "the controller is another broker"
_TRIES = 100
_RETRY_MS = 100
_TRANSIENT = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)
"""What goes by when a controller is elected, or this broker has registered anew."""


class RemoteController:
    """The broker's `ClusterController`. `local` is the controller while this process has it."""

    emulation = Emulation.KAFKA_3_9
    refuses_expired = False
    apis = zookeeper_apis()

    def __init__(
        self,
        adapter: Adapter,
        channel: BrokerChannel,
        register: Callable[[BrokerRegistrationRequest], Awaitable[int]],
        sleep: Callable[[int], Awaitable[None]],
        log: Logger,
    ) -> None:
        """`register` puts the broker into ZooKeeper; its epoch. `sleep` takes milliseconds."""
        self.local: ZooKeeperController | None = None
        self.configs: ConfigWriter
        self._adapter = adapter
        self._channel = channel
        self._register = register
        self._sleep = sleep
        self._log = log
        self._listeners: list[Listener] = []
        self._told: set[asyncio.Event] = set()
        """Of those that wait for a change."""

    @property
    def image(self) -> ClusterImage:
        return self._adapter.image

    @property
    def here(self) -> ZooKeeperController:
        """Raises NotControllerError if the controller is elsewhere."""
        if self.local is None:
            raise NotControllerError(_ELSEWHERE)
        return self.local

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        image = self.image
        first = MetadataDelta.between(ClusterImage(cluster_id=image.cluster_id), image)
        # What this broker holds, nobody has said yet.
        listener(replace(first, complete=False))
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def tell(self, delta: MetadataDelta) -> None:
        """What the controller has said has happened, whether a listener can live with it or not."""
        for listener in tuple(self._listeners):
            try:
                listener(delta)
            except Exception as error:
                self._log.error("a metadata change could not be applied in full", exc_info=error)
        for told in self._told:
            told.set()

    def close(self) -> None:
        self._channel.close()

    # -- the broker's own affairs -------------------------------------------------------------------------------------

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        epoch = await self._register(request)
        listeners = tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners)
        self._adapter.registered(
            BrokerRegistration(request.broker_id, epoch, ZERO_UUID, listeners, (), request.rack, fenced=True)
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    async def unfence_broker(self, broker_id: int) -> None:
        """Over ZooKeeper who is registered is there."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        try:
            return await self.here.alter_partition(request)
        except NotControllerError:
            pass
        try:
            return await self._channel.request(request, ALTER_PARTITION_VERSION, AlterPartitionResponse)
        except BrokerConnectionError:
            return AlterPartitionResponse(error_code=ErrorCode.NETWORK_EXCEPTION)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Refused: ZooKeeper knows of no directories."""
        return await self.here.assign_replicas_to_dirs(request)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Asked again for a while, for instance until there is a controller: the client would only do the same."""
        for _ in range(_TRIES):
            request.broker_epoch = self._adapter.broker_epoch
            response = await self._try_to_allocate(request)
            if response.error_code not in _TRANSIENT:
                break
            await self._sleep(_RETRY_MS)
        return response

    async def _try_to_allocate(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        try:
            return await self.here.allocate_producer_ids(request)
        except NotControllerError:
            pass
        try:
            return await self._channel.request(request, ALLOCATE_PRODUCER_IDS_VERSION, AllocateProducerIdsResponse)
        except BrokerConnectionError:
            return AllocateProducerIdsResponse(error_code=ErrorCode.NETWORK_EXCEPTION)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Asked of wherever the controller is, over the network even if it is here."""
        try:
            return await self._channel.request(request, CONTROLLED_SHUTDOWN_VERSION, ControlledShutdownResponse)
        except BrokerConnectionError:
            return ControlledShutdownResponse(error_code=ErrorCode.NETWORK_EXCEPTION)

    async def create_elsewhere(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """On behalf of this broker, by the controller, which is another one."""
        try:
            return await self._channel.request(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        except BrokerConnectionError:
            error = ErrorCode.LEADER_NOT_AVAILABLE
            return CreateTopicsResponse(
                topics=[
                    CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=error)
                    for topic in request.topics
                ]
            )

    # -- what clients ask ---------------------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """A created topic gets REQUEST_TIMED_OUT when there is no time to wait for its metadata (ZkAdminManager)."""
        response = await self.here.create_topics(request)
        if request.timeout_ms <= 0 and not request.validate_only:
            response.topics = [
                CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=ErrorCode.REQUEST_TIMED_OUT)
                if topic.error_code == ErrorCode.NONE
                else topic
                for topic in response.topics
            ]
        return response

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Answer when this broker's metadata does not show the topics any more, even if brokers still have replicas of
        them (DelayedDeleteTopics); with REQUEST_TIMED_OUT when that takes too long, or if there is no time to wait."""
        response = await self.here.delete_topics(request)
        going = {Uuid(result.topic_id) for result in response.responses if result.error_code == ErrorCode.NONE}
        if request.timeout_ms > 0:
            await self._until_unseen(going, request.timeout_ms)
        for result in response.responses:
            late = request.timeout_ms <= 0 or result.topic_id in self.image.topics_by_id
            if result.error_code == ErrorCode.NONE and late:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    async def _until_unseen(self, topic_ids: Collection[Uuid], timeout_ms: int) -> None:
        told = asyncio.Event()
        self._told.add(told)
        limit = asyncio.ensure_future(self._sleep(timeout_ms))
        try:
            while not limit.done() and not self.image.topics_by_id.keys().isdisjoint(topic_ids):
                told.clear()
                change = asyncio.ensure_future(told.wait())
                await asyncio.wait((limit, change), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            self._told.remove(told)
            limit.cancel()

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """As for `create_topics`."""
        response = await self.here.create_partitions(request)
        if request.timeout_ms <= 0 and not request.validate_only:
            for result in response.results:
                result.error_code = result.error_code or ErrorCode.REQUEST_TIMED_OUT
        return response

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        try:
            return await self.here.alter_reassignments(request)
        except NotControllerError:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=_ELSEWHERE)

    def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        try:
            return self.here.list_reassignments(request)
        except NotControllerError:
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=_ELSEWHERE)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elsewhere is said of each partition: null is all that this broker knows."""
        try:
            return await self.here.elect_leaders(request)
        except NotControllerError:
            asked = request.topic_partitions
            places = (
                [(topic.name, range(len(topic.partitions))) for topic in self.image.topics.values()]
                if asked is None
                else [(topic.topic, topic.partitions) for topic in asked]
            )
            result, topic_result = ElectLeadersResponse.PartitionResult, ElectLeadersResponse.ReplicaElectionResult
            return ElectLeadersResponse(
                replica_election_results=[
                    topic_result(name, [result(index, ErrorCode.NOT_CONTROLLER, None) for index in indexes])
                    for name, indexes in places
                ]
            )

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        return await self.configs.alter(request)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        return await self.configs.alter_incrementally(request)

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        try:
            return await self.here.update_features(request)
        except NotControllerError:
            return UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=_ELSEWHERE)

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self.here.unregister_broker(request)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self.here.describe_quorum(request)
