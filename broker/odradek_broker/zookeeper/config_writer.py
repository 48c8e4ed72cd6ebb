"""AlterConfigs and IncrementalAlterConfigs in ZooKeeper mode, which need no controller.

Owns the write: the broker that gets the request writes the znode of the entity and a notification, after which every
broker and the controller read that znode. Leaves validation to the controller's commands. Sources: ZkAdminManager and
AdminZkClient of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek_broker.zookeeper.config_watch import Configs, ConfigWatch
from odradek_controller.commands.alter_configs import alter_configs, incremental_alter_configs
from odradek_controller.commands.context import CommandContext
from odradek_controller.configs.table import Resource
from odradek_controller.image import ClusterImage, ConfigResource
from odradek_controller.replay import replay
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import Create, MultiError, NodeExistsError, NoNodeError, Set, ZooKeeper
from odradek_controller.zookeeper.load import config_entity
from odradek_controller.zookeeper.znodes import encode_config, encode_config_change
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.config_record import ConfigRecord

if TYPE_CHECKING:
    from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from odradek_wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )


class _Response(Protocol):
    responses: list  # type: ignore[type-arg]  # the two responses have different classes of elements


Response = TypeVar("Response", bound=_Response)
Decide = Callable[[ClusterImage], tuple[Sequence[Message], Response]]


class ConfigWriter:
    """Writes one change at a time. Awaits `written` with the changed configurations before it returns the response."""

    def __init__(
        self,
        zk: ZooKeeper,
        config_watch: ConfigWatch,
        image: Callable[[], ClusterImage],
        context: CommandContext,
        written: Callable[[Configs], Awaitable[None]],
    ) -> None:
        self._zk = zk
        self._config_watch = config_watch
        self._image = image
        self._context = context
        self._written = written
        self._changing = asyncio.Lock()

    async def alter(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        named = [ConfigResource(each.resource_type, each.resource_name) for each in request.resources]
        return await self._change(named, lambda image: alter_configs(image, request, self._context))

    async def alter_incrementally(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        named = [ConfigResource(each.resource_type, each.resource_name) for each in request.resources]
        return await self._change(named, lambda image: incremental_alter_configs(image, request, self._context))

    async def _change(self, named: Iterable[ConfigResource], decide: Decide[Response]) -> Response:
        async with self._changing:
            stored = sorted({resource for resource in named if config_entity(resource) is not None})
            current = await self._config_watch.retried(partial(self._config_watch.read_configs, stored))
            image = self._image()
            image = replace(image, configs={**image.configs, **current})
            records, response = decide(image)
            storable = [
                record
                for record in records
                if isinstance(record, ConfigRecord) and config_entity(_resource(record)) is not None
            ]
            after = replay(image, storable).image.configs
            changed = {key: after.get(key, {}) for key in sorted({_resource(record) for record in storable})}
            for resource, values in changed.items():
                await self._config_watch.retried(partial(self._write, resource, values))
            if changed:
                await self._written(changed)
        for result in response.responses:
            if result.resource_type == Resource.CLIENT_METRICS:
                # Kafka stores these only in KRaft mode.
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = (
                    "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"
                )
        return response

    async def _write(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        """Set the znode, or create it, together with the notification."""
        entity = config_entity(resource)
        assert entity is not None
        path, data = paths.config(entity), encode_config(values)
        notification = Create(paths.CONFIG_CHANGE, encode_config_change(entity), sequential=True)
        while True:
            for write in (Set(path, data), Create(path, data)):
                try:
                    await self._zk.multi([write, notification])
                except MultiError as error:
                    if not isinstance(error.error, NoNodeError | NodeExistsError):
                        raise
                else:
                    return


def _resource(record: ConfigRecord) -> ConfigResource:
    return ConfigResource(record.resource_type, record.resource_name)
