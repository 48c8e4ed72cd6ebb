"""`/brokers/ids/N`: the registration of this broker, which lasts as long as its session.

Owns the znode: creates it again in every new session, with a new broker epoch (its czxid). Leaves its format to
`znodes`. Source: KafkaZkClient.registerBroker and CheckedEphemeral.
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
    """The registration of one broker. Calls `renewed` with the broker epoch of each registration after the first."""

    def __init__(
        self,
        zk: ZooKeeper,
        broker_id: int,
        *,
        timeout_ms: int,
        sleep: Callable[[int], Awaitable[None]],
        wall_ms: Callable[[], int],
        renewed: Callable[[int], Awaitable[None]],
        log: Logger,
    ) -> None:
        """`timeout_ms` is the time to wait for the end of an earlier session. `sleep` takes milliseconds."""
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
        """Create the znode and return the broker epoch. Raises ValueError if another broker has this id, or ZooKeeper
        does not respond."""
        self._broker = broker
        self._unlisten = self._zk.listen(self._session_event)
        return await self._create()

    async def close(self) -> None:
        """Delete the znode, if ZooKeeper is reachable."""
        if self._unlisten is None:
            return
        self.abandon()
        with suppress(ZooKeeperError):
            stat = await self._zk.exists(self._path)
            if stat is not None and stat.ephemeral_owner == self._zk.session_id:
                await self._zk.delete(self._path)

    def abandon(self) -> None:
        """Leave the znode until its session ends, as after a crash."""
        if self._unlisten is not None:
            self._unlisten()
        if self._task is not None:
            self._task.cancel()

    async def _create(self) -> int:
        loop = asyncio.get_running_loop()
        creation, timeout = loop.create_task(self._until_created()), loop.create_task(self._until_timeout())
        try:
            await asyncio.wait((creation, timeout), return_when=asyncio.FIRST_COMPLETED)
            if not creation.done():
                raise ValueError(f"{self._path} belongs to another broker, or ZooKeeper does not respond")
            return creation.result()
        finally:
            creation.cancel()
            timeout.cancel()
            await asyncio.gather(creation, timeout, return_exceptions=True)

    async def _until_timeout(self) -> None:
        await self._sleep(self._timeout_ms)

    async def _until_created(self) -> int:
        while True:
            try:
                await self._zk.until_connected()
                epoch = await self._try_to_create()
                if epoch is not None:
                    return epoch
            except (ConnectionLossError, SessionExpiredError):
                continue

    async def _try_to_create(self) -> int | None:
        """Return the broker epoch; None after a change of a znode that belonged to another session."""
        assert self._broker is not None
        with suppress(NodeExistsError):
            # The znode exists, too, if this broker created it in a request whose response was lost.
            data = self._broker._replace(timestamp_ms=self._wall_ms()).encode()
            await self._zk.create(self._path, data, ephemeral=True)
        changed = asyncio.Event()
        stat = await self._zk.exists(self._path, lambda event: changed.set())
        if stat is None:
            return None
        if stat.ephemeral_owner == self._zk.session_id:
            return stat.czxid
        self._log.warning("waiting for the session of this broker's previous registration to end")
        unlisten = self._zk.listen(lambda event: changed.set())
        try:
            await changed.wait()
        finally:
            unlisten()
        return None

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._log.warning("ZooKeeper session expired, registering again")
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while True:
            try:
                epoch = await self._create()
            except ValueError as error:
                self._log.error("broker cannot register again, retrying", error=str(error))
            else:
                await self._renewed(epoch)
                return
