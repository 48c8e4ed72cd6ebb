"""`/log_dir_event_notification`: this broker has replicas that it serves no more. Which, the controller asks it then.

Owns the writing, again and again until it is done. Source: KafkaZkClient.propagateLogDirEvent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek_broker.logger import Logger
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import ConnectionLossError, SessionExpiredError, ZooKeeper
from odradek_controller.zookeeper.znodes import encode_log_dir_event

_PAUSE_MS = 1_000


class LogDirEvents:
    """`sleep` takes milliseconds."""

    def __init__(self, zk: ZooKeeper, broker_id: int, sleep: Callable[[int], Awaitable[None]], log: Logger) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._sleep = sleep
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._untold = False
        self._closed = False

    def tell(self) -> None:
        """Soon. What is lost before the node is asked for is told with it: the controller asks for all. (What is lost
        after that is not: the controller may have asked when we hear that the node is there.)"""
        self._untold = True
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write(self) -> None:
        while self._untold:
            await self._zk.until_connected()
            self._untold = False
            try:
                await self._zk.create(paths.LOG_DIR_EVENT, encode_log_dir_event(self._broker_id), sequential=True)
            except (ConnectionLossError, SessionExpiredError):
                self._untold = True
            except Exception as error:
                self._log.error("the controller cannot be told of lost replicas; trying on", exc_info=error)
                self._untold = True
                await self._sleep(_PAUSE_MS)
        self._task = None
