"""The controller of ZooKeeper mode: a `Controller` that also handles brokers' responses to control requests.

Owns the commands that differ in ZooKeeper mode, and the replicas that brokers report as deleted, lost or served again.
A topic is deleted when all brokers have deleted their replicas; until then `/admin/delete_topics` has its name, as with
Kafka's controller, and no new topic can have that name. Leaves sending requests to the broker's
`controller_channel_manager`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odradek_log.reporting import Reporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from ..commands.brokers import controlled_shutdown
from ..commands.delete_topics import delete_topics
from ..commands.elect_leaders import balance, elect_leaders
from ..commands.lost_replicas import TopicIdPartition, apply_replica_report
from ..commands.reassign import alter_reassignments
from ..controller import Controller
from ..image import BrokerRegistration, ClusterImage
from ..levels import Emulation
from ..principal import Principal
from ..replay import replay
from . import paths
from .client import Create
from .store import ZooKeeperStore
from .topic_deletion import TopicDeletionManager


class ZooKeeperController(Controller):
    """The controller in one term. `deletions` has the topics in deletion."""

    store: ZooKeeperStore

    def __init__(
        self,
        store: ZooKeeperStore,
        *,
        node_id: int,
        static: Mapping[str, str],
        rng: random.Random,
        reporter: Reporter,
    ) -> None:
        super().__init__(
            store, node_id=node_id, static=static, emulation=Emulation.KAFKA_3_9, rng=rng, reporter=reporter
        )
        self.deletions = TopicDeletionManager()

    @property
    def unreadable(self) -> Collection[str]:
        """The topics whose znodes cannot be read, so that the controller does not know their replicas."""
        return self.store.znode_cache.unreadable

    async def submit(self, request: Message, principal: Principal | None = None) -> Any:
        """As `Controller.submit`, with the requests that ZooKeeper mode handles differently."""
        match request:
            case ControlledShutdownRequest():
                return await self._controlled_shutdown(request)
            case CreateTopicsRequest():
                return await self._create_topics(request, principal)
            case DeleteTopicsRequest():
                return await self._delete_topics(request)
            case CreatePartitionsRequest():
                return await self._create_partitions(request, principal)
            case AlterPartitionReassignmentsRequest():
                return await self._alter_reassignments(request)
            case ElectLeadersRequest():
                return await self._elect_leaders(request)
            case UpdateFeaturesRequest():
                return _refuse_features(request)
            case _:
                return await super().submit(request, principal)

    # -- requests of brokers ------------------------------------------------------------------------------------------

    async def _controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Elect other leaders for the broker's partitions, and return the partitions that it still leads.

        A request of an earlier registration gets STALE_BROKER_EPOCH.
        """

        def decide(image: ClusterImage) -> tuple[Sequence[Message], ControlledShutdownResponse]:
            broker = image.brokers.get(request.broker_id)
            if broker is None or broker.fenced:
                return (), ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
            if request.broker_epoch != -1 and request.broker_epoch < broker.epoch:
                return (), ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            records = controlled_shutdown(image, broker.id, self.context)
            remaining = [
                ControlledShutdownResponse.RemainingPartition(topic.name, index)
                for topic in self.deletions.without_deleted(replay(image, records).image).topics.values()
                for index, partition in enumerate(topic.partitions)
                if partition.leader == broker.id and len(partition.replicas) > 1
            ]
            return records, ControlledShutdownResponse(remaining_partitions=remaining)

        return await self._change(decide)

    # -- responses of brokers -----------------------------------------------------------------------------------------

    async def replicas_reported(
        self, broker: BrokerRegistration, lost: Collection[TopicIdPartition], served: Collection[TopicIdPartition]
    ) -> None:
        """Record the replicas that a broker no longer serves, or serves again.

        Ignore the report if the broker has registered again. Raises NotControllerError.
        """

        def decide(image: ClusterImage) -> tuple[list[Message], None]:
            if not _is_current_registration(image, broker):
                return [], None
            return apply_replica_report(image, broker.id, lost, served, self.context), None

        await self._change(decide)

    def replicas_deleted(
        self, broker: BrokerRegistration, deleted: Collection[tuple[str, int]], failed: Collection[tuple[str, int]]
    ) -> None:
        """Record the replicas that a broker has deleted; it gets the failed ones again when it registers again."""
        if _is_current_registration(self.image, broker):
            self.deletions.complete_replica_deletion(broker.id, deleted)
            remaining = sorted(set(failed) & set(self.deletions.remaining_replicas(broker.id)))
            if remaining:
                self._reporter.error("broker cannot delete replicas", broker=broker.id, partitions=remaining)

    # -- requests of clients ------------------------------------------------------------------------------------------

    async def _create_topics(self, request: CreateTopicsRequest, principal: Principal | None) -> CreateTopicsResponse:
        unreadable = [topic.name for topic in request.topics if topic.name in self.unreadable]
        request.topics = [topic for topic in request.topics if topic.name not in unreadable]
        response: CreateTopicsResponse = await super().submit(request, principal)
        response.topics += [
            CreateTopicsResponse.CreatableTopicResult(
                name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message=f"Topic '{name}' already exists."
            )
            for name in unreadable
        ]
        for result in response.topics:
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and self._is_queued_for_deletion(result.name):
                result.error_message = f"Topic '{result.name}' is marked for deletion."
        return response

    async def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Create the znodes that request the deletions. The caller waits for the deletions before it responds."""
        _, response = delete_topics(self.image, request, self.context)
        for result in response.responses:
            if result.error_code == ErrorCode.NONE:
                assert result.name is not None
                await self.store.try_write(Create(paths.delete_topic(result.name)))
        return response

    async def _create_partitions(
        self, request: CreatePartitionsRequest, principal: Principal | None
    ) -> CreatePartitionsResponse:
        queued = [topic for topic in request.topics if self._is_queued_for_deletion(topic.name)]
        request.topics = [topic for topic in request.topics if topic not in queued]
        response: CreatePartitionsResponse = await super().submit(request, principal)
        response.results += [
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                topic.name, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."
            )
            for topic in queued
        ]
        return response

    async def _alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        return await self._change(
            lambda image: alter_reassignments(
                self.deletions.without_deleted(image), request, self.context, allow_unregistered=True
            )
        )

    async def _elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        return await self._change(
            lambda image: elect_leaders(self.deletions.without_deleted(image), request, self.context)
        )

    async def balance_leaders(self) -> None:
        await self._change(lambda image: (balance(self.deletions.without_deleted(image), self.context), None))

    def _is_queued_for_deletion(self, name: str) -> bool:
        topic = self.image.topics.get(name)
        return topic is not None and topic.id in self.deletions


def _refuse_features(request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse every update, as KafkaController does: brokers of Kafka 3.9 have no features in ZooKeeper mode."""
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(update.feature, ErrorCode.INVALID_REQUEST, _feature_error(update))
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _feature_error(update: UpdateFeaturesRequest.FeatureUpdateKey) -> str:
    upgrade, level = update.upgrade_type == 1 and not update.allow_downgrade, update.max_version_level
    if not update.feature:
        return "Feature name can not be empty."
    if not 1 <= update.upgrade_type <= 3:
        return "Received unknown upgrade type."
    if level < 1:
        if upgrade:
            return (
                f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the "
                "request."
            )
        return "Can not delete non-existing finalized feature."
    return "Could not apply finalized feature update because the provided feature is not supported."


def _is_current_registration(image: ClusterImage, broker: BrokerRegistration) -> bool:
    known = image.brokers.get(broker.id)
    return known is not None and known.epoch == broker.epoch
