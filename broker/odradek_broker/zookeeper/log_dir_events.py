"""`/log_dir_event_notification`: notifies the controller that a log directory of this broker has failed.

The controller then asks for the lost replicas. Owns the write, with retries until it succeeds. Source:
KafkaZkClient.propagateLogDirEvent.
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
    """Writes the notifications of one broker. `sleep` takes milliseconds."""

    def __init__(self, zk: ZooKeeper, broker_id: int, sleep: Callable[[int], Awaitable[None]], log: Logger) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._sleep = sleep
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._pending = False
        self._closed = False

    def notify(self) -> None:
        """Write a notification soon. It covers every replica lost before the write begins; one lost later needs
        another, because the controller may have asked already."""
        self._pending = True
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write(self) -> None:
        while self._pending:
            await self._zk.until_connected()
            self._pending = False
            try:
                await self._zk.create(paths.LOG_DIR_EVENT, encode_log_dir_event(self._broker_id), sequential=True)
            except (ConnectionLossError, SessionExpiredError):
                self._pending = True
            except Exception as error:
                self._log.error(
                    "log directory failure could not be reported to the controller, retrying", exc_info=error
                )
                self._pending = True
                await self._sleep(_PAUSE_MS)
        self._task = None
