"""The controller channel of ZooKeeper mode: the controller is in this process, in another one, or not elected yet.

Owns the connection to the broker that `/controller` names, for the requests of this broker itself. This broker does not
forward requests of clients: a client gets NOT_CONTROLLER and finds the controller in the metadata. Leaves
configurations, which need no controller, to `config_writer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.zookeeper.config_writer import ConfigWriter
from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_broker.zookeeper.metadata_source import ZooKeeperSource
from odradek_controller.image import BrokerRegistration, Endpoint
from odradek_controller.principal import Principal
from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper.controller import ZooKeeperController
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek_wire.messages.alter_configs import AlterConfigsRequest
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek_wire.uuid import ZERO_UUID, Uuid

R = TypeVar("R", bound=Message)

ALTER_PARTITION_VERSION = 3
ALLOCATE_PRODUCER_IDS_VERSION = 0
CONTROLLED_SHUTDOWN_VERSION = 3
CREATE_TOPICS_VERSION = 7

_NOT_CONTROLLER = "this broker is not the controller"
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
"""Errors that no longer occur when a controller is elected, or when this broker has registered again."""


class ZooKeeperControllerChannel:
    """The broker's `ControllerChannel`. `local` is the controller while it is in this process."""

    def __init__(
        self,
        *,
        adapter: ControlRequestAdapter,
        source: ZooKeeperSource,
        connection: BrokerChannel,
        register: Callable[[BrokerRegistrationRequest], Awaitable[int]],
        sleep: Callable[[int], Awaitable[None]],
    ) -> None:
        """`register` creates the broker's znode and returns its epoch. `sleep` takes milliseconds."""
        self.local: ZooKeeperController | None = None
        self.config_writer: ConfigWriter
        """Set before the first request."""
        self._adapter = adapter
        self._source = source
        self._connection = connection
        self._register = register
        self._sleep = sleep

    def close(self) -> None:
        self._connection.close()

    async def submit(self, request: Message, principal: Principal | None = None) -> Any:
        """As `ControllerChannel.submit`."""
        match request:
            case BrokerRegistrationRequest():
                return await self._register_this_broker(request)
            case BrokerHeartbeatRequest():
                # The session with ZooKeeper replaces heartbeats: a registered broker is not fenced.
                return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
            case AlterPartitionRequest():
                return await self._alter_partition(request)
            case AllocateProducerIdsRequest():
                return await self._allocate_producer_ids(request)
            case ControlledShutdownRequest():
                return await self._controlled_shutdown(request)
            case AlterConfigsRequest():
                return await self.config_writer.alter(request)
            case IncrementalAlterConfigsRequest():
                return await self.config_writer.alter_incrementally(request)
            case CreateTopicsRequest() if principal is None:
                return await self._create_topics(request)
            case CreateTopicsRequest():
                return await self._create_topics_for_client(request, principal)
            case CreatePartitionsRequest():
                return await self._create_partitions(request, principal)
            case DeleteTopicsRequest():
                return await self._delete_topics(request, principal)
            case _:
                return await self._submit_for_client(request, principal)

    async def submit_local(self, request: Message, principal: Principal | None = None) -> Any:
        """Submit the request to the controller in this process. Raises NotControllerError if there is none."""
        if self.local is None:
            raise NotControllerError(_NOT_CONTROLLER)
        return await self.local.submit(request, principal)

    # -- requests of this broker --------------------------------------------------------------------------------------

    async def _register_this_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        epoch = await self._register(request)
        listeners = tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners)
        self._adapter.registered(
            BrokerRegistration(request.broker_id, epoch, ZERO_UUID, listeners, (), request.rack, fenced=True)
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        try:
            return await self._local_or_remote(request, ALTER_PARTITION_VERSION, AlterPartitionResponse)
        except BrokerConnectionError:
            return AlterPartitionResponse(error_code=ErrorCode.NETWORK_EXCEPTION)

    async def _allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Retry while no controller responds, so that the client that needs a producer id does not have to."""
        for _ in range(_TRIES):
            request.broker_epoch = self._adapter.broker_epoch
            try:
                response = await self._local_or_remote(
                    request, ALLOCATE_PRODUCER_IDS_VERSION, AllocateProducerIdsResponse
                )
            except BrokerConnectionError:
                response = AllocateProducerIdsResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
            if response.error_code not in _TRANSIENT:
                break
            await self._sleep(_RETRY_MS)
        return response

    async def _controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Send the request over the network even if the controller is in this process."""
        try:
            return await self._connection.request(request, CONTROLLED_SHUTDOWN_VERSION, ControlledShutdownResponse)
        except BrokerConnectionError:
            return ControlledShutdownResponse(error_code=ErrorCode.NETWORK_EXCEPTION)

    async def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create topics for this broker itself: internal topics, and topics that clients named in Metadata requests."""
        try:
            return await self._local_or_remote(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        except BrokerConnectionError:
            error = ErrorCode.LEADER_NOT_AVAILABLE
            return CreateTopicsResponse(
                topics=[
                    CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=error)
                    for topic in request.topics
                ]
            )

    async def _local_or_remote(self, request: Message, version: int, response: type[R]) -> R:
        """Raises BrokerConnectionError if the controller is in another process and does not respond."""
        try:
            return await self.submit_local(request)  # type: ignore[no-any-return]  # the response of the request's API
        except NotControllerError:
            return await self._connection.request(request, version, response)

    # -- requests of clients ------------------------------------------------------------------------------------------

    async def _create_topics_for_client(
        self, request: CreateTopicsRequest, principal: Principal | None
    ) -> CreateTopicsResponse:
        """Return REQUEST_TIMED_OUT for a created topic if `timeout_ms` is 0 or less, as ZkAdminManager does."""
        response: CreateTopicsResponse = await self.submit_local(request, principal)
        if request.timeout_ms <= 0 and not request.validate_only:
            response.topics = [
                CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=ErrorCode.REQUEST_TIMED_OUT)
                if topic.error_code == ErrorCode.NONE
                else topic
                for topic in response.topics
            ]
        return response

    async def _create_partitions(
        self, request: CreatePartitionsRequest, principal: Principal | None
    ) -> CreatePartitionsResponse:
        """As `_create_topics_for_client`."""
        response: CreatePartitionsResponse = await self.submit_local(request, principal)
        if request.timeout_ms <= 0 and not request.validate_only:
            for result in response.results:
                result.error_code = result.error_code or ErrorCode.REQUEST_TIMED_OUT
        return response

    async def _delete_topics(self, request: DeleteTopicsRequest, principal: Principal | None) -> DeleteTopicsResponse:
        """Return when this broker's image has none of the topics, even if brokers still have replicas of them
        (Kafka's DelayedDeleteTopics). After `timeout_ms` the remaining topics get REQUEST_TIMED_OUT."""
        response: DeleteTopicsResponse = await self.submit_local(request, principal)
        deleted = {Uuid(result.topic_id) for result in response.responses if result.error_code == ErrorCode.NONE}
        if request.timeout_ms > 0:
            await self._source.until_removed(deleted, request.timeout_ms)
        for result in response.responses:
            timed_out = request.timeout_ms <= 0 or result.topic_id in self._source.image.topics_by_id
            if result.error_code == ErrorCode.NONE and timed_out:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    async def _submit_for_client(self, request: Message, principal: Principal | None) -> Any:
        """Submit to the controller in this process. If there is none, return NOT_CONTROLLER in a response that has a
        field for it, or raise NotControllerError."""
        try:
            return await self.submit_local(request, principal)
        except NotControllerError:
            match request:
                case AlterPartitionReassignmentsRequest():
                    return AlterPartitionReassignmentsResponse(
                        error_code=ErrorCode.NOT_CONTROLLER, error_message=_NOT_CONTROLLER
                    )
                case ListPartitionReassignmentsRequest():
                    return ListPartitionReassignmentsResponse(
                        error_code=ErrorCode.NOT_CONTROLLER, error_message=_NOT_CONTROLLER
                    )
                case UpdateFeaturesRequest():
                    return UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=_NOT_CONTROLLER)
                case ElectLeadersRequest():
                    return self._refuse_elections(request)
                case _:
                    raise

    def _refuse_elections(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Return NOT_CONTROLLER for each partition of the request. If it is for all partitions, return those that this
        broker knows."""
        requested = request.topic_partitions
        partitions = (
            [(topic.name, range(len(topic.partitions))) for topic in self._source.image.topics.values()]
            if requested is None
            else [(topic.topic, topic.partitions) for topic in requested]
        )
        result, topic_result = ElectLeadersResponse.PartitionResult, ElectLeadersResponse.ReplicaElectionResult
        return ElectLeadersResponse(
            replica_election_results=[
                topic_result(name, [result(index, ErrorCode.NOT_CONTROLLER, None) for index in indexes])
                for name, indexes in partitions
            ]
        )
