"""The inter-broker requests of ZooKeeper mode that this broker receives from the controller and from other brokers.

Owns the order in which control requests and changed configurations pass through the adapter: one at a time. The first
request that names a topic waits until the broker has read the topic's configuration. Requests of other brokers to the
controller go to the controller in this process. Leaves the translation into deltas to `control_request_adapter`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from odradek_broker.zookeeper.config_watch import Configs, ConfigWatch, Entities
from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_broker.zookeeper.metadata_source import ZooKeeperSource
from odradek_controller.configs.table import Resource
from odradek_controller.image import ConfigResource, MetadataDelta, ReplicaAction
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.logger import Logger


class ControlRequestHandler:
    """The broker's `ControlRequests`."""

    def __init__(
        self,
        *,
        adapter: ControlRequestAdapter,
        config_watch: ConfigWatch,
        source: ZooKeeperSource,
        submit_local: Callable[[Message], Awaitable[Any]],
        broker: Callable[[], Broker],
        log: Logger,
    ) -> None:
        """`broker` returns the broker. It is not called before the first request."""
        self._adapter = adapter
        self._config_watch = config_watch
        self._source = source
        self._submit_local = submit_local
        self._broker = broker
        self._log = log
        self._handling = asyncio.Lock()

    async def handle(self, request: Message) -> Any:
        """As `ControlRequests.handle`."""
        match request:
            case LeaderAndIsrRequest():
                return await self._leader_and_isr(request)
            case UpdateMetadataRequest():
                return await self._update_metadata(request)
            case StopReplicaRequest():
                return await self._stop_replica(request)
            case _:
                return await self._submit_local(request)

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._handling:
            await self._read_configs(request)
            delta, response = self._adapter.leader_and_isr(request)
            if delta is not None:
                await self._source.publish(delta)
                self._add_storage_errors(response)
            return response

    async def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._handling:
            await self._read_configs(request)
            delta, response = self._adapter.update_metadata(request)
            if delta is not None:
                await self._source.publish(delta)
            return response

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._handling:
            delta, response = self._adapter.stop_replica(request)
            if delta is not None:
                await self._source.publish(delta)
                self._add_failed_deletions(delta, response)
            return response

    async def registered_again(self, epoch: int) -> None:
        """Publish the new epoch of this broker, which has registered again after its session had expired."""
        async with self._handling:
            own = self._adapter.image.brokers[self._adapter.broker_id]
            await self._source.publish(self._adapter.registered(own._replace(epoch=epoch)))

    async def configs_changed(self, configs: Configs) -> None:
        """Publish the configurations that differ from the image."""
        async with self._handling:
            known = self._adapter.image.configs
            changed = {key: values for key, values in configs.items() if values != known.get(key, {})}
            if changed:
                await self._source.publish(self._adapter.configs_changed(changed))

    async def entities_changed(self, entities: Entities) -> None:
        """Publish changed quotas and credentials. An entity that cannot be read keeps its last values."""
        async with self._handling:
            delta, damaged = self._adapter.entities_changed(entities)
            for error in damaged:
                self._log.error("quota or credential cannot be read", path=error.path, exc_info=error)
            if delta is not None:
                await self._source.publish(delta)

    async def _read_configs(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
        """Read and publish the configurations of topics that no earlier request has named."""
        names = self._adapter.unknown_topics(request)
        if names:
            resources = [ConfigResource(Resource.TOPIC, name) for name in names]
            configs = await self._config_watch.retried(lambda: self._config_watch.read_configs(resources))
            await self._source.publish(self._adapter.configs_changed(configs))

    def _add_storage_errors(self, response: LeaderAndIsrResponse) -> None:
        """Set KAFKA_STORAGE_ERROR for replicas in failed log directories."""
        partitions = self._broker().partitions
        for each in response.partition_errors:
            partition = partitions.get(each.topic_name, each.partition_index)
            if not each.error_code and partition is not None and partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
                each.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def _add_failed_deletions(self, delta: MetadataDelta, response: StopReplicaResponse) -> None:
        """Set KAFKA_STORAGE_ERROR for replicas that the broker could not delete."""
        directories = self._broker().log_directories.all
        for each in response.partition_errors:
            key = (each.topic_name, each.partition_index)
            if delta.replica_actions.get(key) is ReplicaAction.DELETE and any(
                directory.has_log(*key) for directory in directories
            ):
                each.error_code = ErrorCode.KAFKA_STORAGE_ERROR
