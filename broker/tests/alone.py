"""A cluster of one broker, which most tests call a node."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from odradek_broker.broker import Broker
from odradek_broker.clock import Clock
from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.logger import Logger
from odradek_broker.network.http_port import HttpPort
from odradek_broker.network.listeners import Listener
from odradek_broker.network.server import Server
from odradek_broker.storage.log_manager import LogManager
from odradek_controller.controller import Controller
from odradek_log.disk import Disk


class Node:
    """`await Node.start(config)` starts one; its attributes are parts of the broker and of the cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        (self._node,) = cluster.nodes.values()

    @classmethod
    async def start(
        cls,
        config: Mapping[str, str],
        *,
        log: Logger | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        randbytes: Callable[[int], bytes] = os.urandom,
        **security: Any,
    ) -> Node:
        """`security` are fields of the environment: authorizer, quotas, channel_builders."""
        environment = BrokerEnvironment.of(config, log=log, clock=clock, disk=disk, randbytes=randbytes)
        return cls(await EmbeddedCluster.start([config], environment=replace(environment, **security)))

    @property
    def broker(self) -> Broker:
        return self._node.broker

    @property
    def server(self) -> Server:
        return self._node.server

    @property
    def log_manager(self) -> LogManager:
        return self._node.log_manager

    @property
    def controller(self) -> Controller:
        return self.cluster.controller

    @property
    def http(self) -> HttpPort | None:
        return self._node.http

    @property
    def listeners(self) -> list[Listener]:
        return self._node.listeners

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def ready(self) -> bool:
        return self._node.ready

    async def stop(self, grace_ms: int = 5000) -> None:
        await self.cluster.stop(grace_ms)

    async def kill(self) -> None:
        await self.cluster.kill()

    async def reset(self, topics: Mapping[str, int] | None = None) -> None:
        await self.cluster.reset(topics)
