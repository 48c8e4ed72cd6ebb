"""`/log_dir_event_notification`: notifies the controller that a log directory of this broker has failed.

Owns the notification. Leaves retries to `CoalescingQueue`; the controller then asks this broker for its lost replicas.
Source: KafkaZkClient.propagateLogDirEvent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_broker.inter_broker.coalescing_queue import CoalescingQueue
from odradek_broker.logger import Logger
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import ConnectionLossError, SessionExpiredError, ZooKeeper
from odradek_controller.zookeeper.znodes import encode_log_dir_event

_RETRY_MS = 1_000


class LogDirEvents:
    """Writes the notifications of one broker. `sleep` takes milliseconds."""

    def __init__(self, zk: ZooKeeper, broker_id: int, sleep: Callable[[int], Awaitable[None]], log: Logger) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._queue: CoalescingQueue[int, None] = CoalescingQueue(
            self._write,
            sleep=sleep,
            retry_ms=_RETRY_MS,
            failure_event="log directory failure could not be reported to the controller, retrying",
            log=log,
        )

    def notify(self) -> None:
        """Write a notification soon. It covers all replicas lost before the write begins; a replica lost later needs
        another, because the controller may have asked already."""
        self._queue.add(self._broker_id, None)

    async def close(self) -> None:
        await self._queue.close()

    async def _write(self, brokers: dict[int, None]) -> dict[int, None]:
        try:
            await self._zk.until_connected()
            await self._zk.create(paths.LOG_DIR_EVENT, encode_log_dir_event(self._broker_id), sequential=True)
        except (ConnectionLossError, SessionExpiredError):
            return brokers
        return {}
