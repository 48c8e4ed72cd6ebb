"""Dynamic configurations, quotas and credentials in ZooKeeper, which every broker reads and watches.

Owns the watch of `/config/changes`, where a sequential znode for each change names the entity that the broker then
reads again. The first configuration of a topic has no notification; the broker reads it when the first request names
the topic. After an expired session the broker reads everything again, because notifications expire after 15 minutes.
Leaves the image to `control_requests`, and writing to `config_writer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from odradek_broker.logger import Logger
from odradek_controller.image import ConfigResource
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import (
    ConnectionLossError,
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
    WatchedEvent,
    ZooKeeper,
)
from odradek_controller.zookeeper.config_entities import is_quota_entity
from odradek_controller.zookeeper.json_text import InvalidZnodeError
from odradek_controller.zookeeper.load import children, config_entity, config_resource, quota_entities, read_config
from odradek_controller.zookeeper.znodes import decode_config_change

Configs = Mapping[ConfigResource, Mapping[str, str]]
Entities = Mapping[str, Mapping[str, str]]
"""The quotas and credentials of users, clients and addresses, by entity path (`users/u/clients/c`)."""
Found = TypeVar("Found")

_MAX_CONCURRENT_READS = 500
"""The maximum number of znodes that are read concurrently."""
_PAUSE_MS = 1_000
"""The time before the broker reads everything again, after an error other than a lost connection."""


class ConfigWatch:
    """Awaits `changed` with the values that were read again. `sleep` takes milliseconds."""

    def __init__(
        self,
        zk: ZooKeeper,
        changed: Callable[[Configs, Entities], Awaitable[None]],
        sleep: Callable[[int], Awaitable[None]],
        log: Logger,
    ) -> None:
        self._zk = zk
        self._changed = changed
        self._sleep = sleep
        self._log = log
        self._seen: set[str] = set()
        self._known_resources: set[ConfigResource] = set()
        """Topics and brokers that had a configuration: a later read of everything must report its removal."""
        self._known_entities: set[str] = set()
        self._reread_all = False
        self._wake = asyncio.Event()
        self._unlisten: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> tuple[Configs, Entities]:
        """Return all configurations, quotas and credentials. Later changes go to `changed`."""
        self._unlisten = self._zk.listen(self._session_event)
        # The notifications are read first: a change in between is then read twice, not missed.
        await self.retried(self._read_notifications)
        found = await self.retried(self._read_all)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return found

    async def close(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def read_configs(self, resources: Iterable[ConfigResource]) -> Configs:
        """Return the current configurations of topics and brokers; they are empty if there is no znode."""
        entities: dict[ConfigResource, str] = {}
        for resource in resources:
            entity = config_entity(resource)
            assert entity is not None, "topics and brokers have one"
            entities[resource] = entity
        values = await self._read_each(list(entities.values()))
        configs = {resource: values[entity] for resource, entity in entities.items()}
        self._known_resources.update(resource for resource, config in configs.items() if config)
        return configs

    async def _read_entities(self, requested: Iterable[str]) -> Entities:
        entities = await self._read_each(list(requested))
        self._known_entities.update(entity for entity, values in entities.items() if values)
        return entities

    async def _read_each(self, entities: list[str]) -> dict[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        for start in range(0, len(entities), _MAX_CONCURRENT_READS):
            chunk = entities[start : start + _MAX_CONCURRENT_READS]
            found.update(zip(chunk, await asyncio.gather(*map(self._read, chunk)), strict=True))
        return found

    async def retried(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Read, and read again after a lost connection or an expired session."""
        while True:
            await self._zk.until_connected()
            try:
                return await read()
            except (ConnectionLossError, SessionExpiredError):
                continue

    async def _read(self, entity: str) -> Mapping[str, str]:
        try:
            return await read_config(self._zk, entity) or {}
        except InvalidZnodeError as error:
            self._log.error("configuration cannot be read and is taken as empty", path=error.path, exc_info=error)
            return {}

    async def _read_all(self) -> tuple[Configs, Entities]:
        named = [
            f"{kind}/{name}" for kind in ("topics", "brokers") for name in await children(self._zk, paths.config(kind))
        ]
        resources = {found for entity in named if (found := config_resource(entity)) is not None}
        configs = await self.read_configs(sorted(resources | self._known_resources))
        entities = {*await quota_entities(self._zk), *self._known_entities}
        return configs, await self._read_entities(sorted(entities))

    async def _read_notifications(self) -> set[str]:
        """Return the entities of the notifications that are new since the last call, and register a watch."""
        names = set(await children(self._zk, paths.CONFIG_CHANGES, self._notified))
        new, self._seen = names - self._seen, names
        entities: set[str] = set()
        for name in sorted(new):
            path = f"{paths.CONFIG_CHANGES}/{name}"
            try:
                data, _ = await self._zk.get(path)
                entities.add(decode_config_change(path, data))
            except NoNodeError:
                continue
            except InvalidZnodeError as error:
                self._log.error("configuration change notification cannot be read", path=path, exc_info=error)
                continue
            except BaseException:
                self._seen -= new
                raise
        return entities

    async def _read_changed(self, changed: set[str]) -> tuple[Configs, Entities]:
        resources = {resource for entity in changed if (resource := config_resource(entity)) is not None}
        entities = sorted(filter(is_quota_entity, changed))
        return await self.read_configs(sorted(resources)), await self._read_entities(entities)

    # -- events -------------------------------------------------------------------------------------------------------

    def _notified(self, event: WatchedEvent) -> None:
        self._wake.set()

    def _session_event(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.EXPIRED:
                self._reread_all = True
            case SessionEvent.CONNECTED:
                self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                changed = await self.retried(self._read_notifications)
                if self._reread_all:
                    self._reread_all = False
                    await self._changed(*await self.retried(self._read_all))
                elif changed:
                    await self._changed(*await self.retried(partial(self._read_changed, changed)))
            except Exception as error:
                # The names of the changed entities are lost, and there may be no other event.
                self._log.error("configurations could not be read again, retrying", exc_info=error)
                self._reread_all = True
                await self._sleep(_PAUSE_MS)
                self._wake.set()
