"""`/brokers/ids/N`: this broker is there, as long as its session is.

Owns the node, and creates it again in every new session: the broker's epoch is then another one (its czxid), and
whoever is told of it takes that up. Source: KafkaZkClient.registerBroker and CheckedEphemeral.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odradek_broker.logger import Logger
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import (
    ConnectionLossError,
    NodeExistsError,
    SessionEvent,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from odradek_controller.zookeeper.znodes import BrokerZnode


class BrokerZnodeRegistration:
    """One broker's. `renewed` is called with the epoch of every registration but the first."""

    def __init__(
        self,
        zk: ZooKeeper,
        broker_id: int,
        *,
        timeout_ms: int,
        sleep: Callable[[int], Awaitable[None]],
        wall_ms: Callable[[], int],
        renewed: Callable[[int], None],
        log: Logger,
    ) -> None:
        """`timeout_ms`: so long the node of a session before ours may be there still. `sleep` takes milliseconds."""
        self._zk = zk
        self._path = paths.broker(broker_id)
        self._timeout_ms = timeout_ms
        self._sleep = sleep
        self._wall_ms = wall_ms
        self._renewed = renewed
        self._log = log
        self._broker: BrokerZnode | None = None
        self._unlisten: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def register(self, broker: BrokerZnode) -> int:
        """The broker's epoch. Raises ValueError if another broker has this id."""
        self._broker = broker
        self._unlisten = self._zk.listen(self._session_event)
        return await self._create()

    async def close(self) -> None:
        """The broker goes: the node too, if ZooKeeper can be reached."""
        if self._unlisten is None:
            return
        self.abandon()
        with suppress(ZooKeeperError):
            stat = await self._zk.exists(self._path)
            if stat is not None and stat.ephemeral_owner == self._zk.session_id:
                await self._zk.delete(self._path)

    def abandon(self) -> None:
        """As if the process had ended: the node stays until its session ends."""
        if self._unlisten is not None:
            self._unlisten()
        if self._task is not None:
            self._task.cancel()

    async def _create(self) -> int:
        loop = asyncio.get_running_loop()
        work, limit = loop.create_task(self._until_created()), loop.create_task(self._wait())
        try:
            await asyncio.wait((work, limit), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ValueError(f"another broker is registered as {self._path}, or ZooKeeper does not answer")
            return work.result()
        finally:
            work.cancel()
            limit.cancel()
            await asyncio.gather(work, limit, return_exceptions=True)

    async def _wait(self) -> None:
        await self._sleep(self._timeout_ms)

    async def _until_created(self) -> int:
        while True:
            try:
                await self._zk.until_connected()
                epoch = await self._try()
                if epoch is not None:
                    return epoch
            except (ConnectionLossError, SessionExpiredError):
                continue

    async def _try(self) -> int | None:
        """None after a while in which the node of another session was there."""
        assert self._broker is not None
        with suppress(NodeExistsError):
            # What was asked for before the connection broke may have been done.
            data = self._broker._replace(timestamp_ms=self._wall_ms()).encode()
            await self._zk.create(self._path, data, ephemeral=True)
        gone = asyncio.Event()
        stat = await self._zk.exists(self._path, lambda event: gone.set())
        if stat is None:
            return None
        if stat.ephemeral_owner == self._zk.session_id:
            return stat.czxid
        self._log.warning("this broker's last registration is still there; waiting for its session to end")
        unlisten = self._zk.listen(lambda event: gone.set())
        try:
            await gone.wait()
        finally:
            unlisten()
        return None

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._log.warning("the session with ZooKeeper has expired; registering again")
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while True:
            try:
                epoch = await self._create()
            except ValueError as error:
                self._log.error("this broker cannot register again; trying on", error=str(error))
            else:
                self._renewed(epoch)
                return
