"""Everything that reaches this broker from its cluster, one after another: requests of the controller and changed
configurations, through the adapter into the broker; and what other brokers ask, if the controller is here.

Owns the order. A request is handled when the configurations of the topics that it is the first to name are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek_broker.zookeeper.adapter import Adapter
from odradek_broker.zookeeper.config_watch import Configs, ConfigWatch, Entities
from odradek_broker.zookeeper.consumer_offsets import ConsumerOffsets
from odradek_broker.zookeeper.log_dir_events import LogDirEvents
from odradek_broker.zookeeper.remote_controller import RemoteController
from odradek_controller.configs.table import Resource
from odradek_controller.image import ConfigResource, Fate, MetadataDelta
from odradek_controller.store import NotControllerError
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.logger import Logger
    from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
    from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
    from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
    from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class Inbox:
    """The broker's `InterBroker`. `broker` is asked once it is there."""

    def __init__(
        self,
        adapter: Adapter,
        configs: ConfigWatch,
        controller: RemoteController,
        broker: Callable[[], Broker],
        old_offsets: ConsumerOffsets,
        log_dir_events: LogDirEvents,
        log: Logger,
    ) -> None:
        self.old_offsets = old_offsets
        self._adapter = adapter
        self._configs = configs
        self._controller = controller
        self._broker = broker
        self._log_dir_events = log_dir_events
        self._log = log
        self._handling = asyncio.Lock()

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._handling:
            await self._read_configs(request)
            delta, response = self._adapter.leader_and_isr(request)
            if delta is not None:
                self._controller.tell(delta)
                self._report_broken_disks(response)
            return response

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._handling:
            await self._read_configs(request)
            delta, response = self._adapter.update_metadata(request)
            if delta is not None:
                self._controller.tell(delta)
            return response

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._handling:
            delta, response = self._adapter.stop_replica(request)
            if delta is not None:
                self._controller.tell(delta)
                self._report_what_is_still_there(delta, response)
            return response

    async def configured(self, configs: Configs) -> None:
        """These have changed, or may have."""
        async with self._handling:
            known = self._adapter.image.configs
            news = {key: values for key, values in configs.items() if values != known.get(key, {})}
            if news:
                self._controller.tell(self._adapter.configured(news))

    async def limited(self, entities: Entities) -> None:
        """Quotas and credentials have changed, or may have. What cannot be read stays as it was."""
        async with self._handling:
            delta, damaged = self._adapter.limited(entities)
            for error in damaged:
                self._log.error("a quota or a credential cannot be read", path=error.path, exc_info=error)
            if delta is not None:
                self._controller.tell(delta)

    async def _read_configs(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
        names = self._adapter.unknown_topics(request)
        if names:
            wanted = [ConfigResource(Resource.TOPIC, name) for name in names]
            found = await self._configs.retried(lambda: self._configs.of(wanted))
            self._controller.tell(self._adapter.configured(found))

    def _report_broken_disks(self, response: LeaderAndIsrResponse) -> None:
        partitions = self._broker().partitions
        for each in response.partition_errors:
            partition = partitions.get(each.topic_name, each.partition_index)
            if not each.error_code and partition is not None and partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
                each.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def _report_what_is_still_there(self, delta: MetadataDelta, response: StopReplicaResponse) -> None:
        directories = self._broker().replica_manager.directories
        for each in response.partition_errors:
            key = (each.topic_name, each.partition_index)
            if delta.fates.get(key) is Fate.DELETED and any(directory.holds(*key) for directory in directories):
                each.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def replicas_lost(self) -> None:
        self._log_dir_events.tell()

    # -- for other brokers, if the controller is here -----------------------------------------------------------------

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._controller.here.alter_partition(request)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._controller.here.allocate_producer_ids(request)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return await self._controller.here.shut_down(request)

    async def create_missing(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        try:
            return await self._controller.here.create_topics(request)
        except NotControllerError:
            return await self._controller.create_elsewhere(request)
