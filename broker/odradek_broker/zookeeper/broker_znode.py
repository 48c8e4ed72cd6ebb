"""`/brokers/ids/N`: the registration of this broker, which lasts as long as its session.

Owns the znode, and creates it again in every new session, with a new broker epoch (its czxid). Source:
KafkaZkClient.registerBroker and CheckedEphemeral.
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
    """The registration of one broker. Calls `renewed` with the epoch of each registration except the first."""

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
        """`timeout_ms` is the maximum wait for the end of an earlier session. `sleep` takes milliseconds."""
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
        """Create the znode and return the broker epoch. Raises ValueError if another broker has this id."""
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
        """Leave the znode until its session ends, as after the end of a process."""
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
                raise ValueError(f"{self._path} belongs to another broker, or ZooKeeper does not respond")
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
        """Return the epoch; None to try again after a change of a znode that belongs to another session."""
        assert self._broker is not None
        with suppress(NodeExistsError):
            # An earlier request, whose response was lost with the connection, may have created it.
            data = self._broker._replace(timestamp_ms=self._wall_ms()).encode()
            await self._zk.create(self._path, data, ephemeral=True)
        gone = asyncio.Event()
        stat = await self._zk.exists(self._path, lambda event: gone.set())
        if stat is None:
            return None
        if stat.ephemeral_owner == self._zk.session_id:
            return stat.czxid
        self._log.warning("waiting for the session of this broker's previous registration to end")
        unlisten = self._zk.listen(lambda event: gone.set())
        try:
            await gone.wait()
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
                self._renewed(epoch)
                return
