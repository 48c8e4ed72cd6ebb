"""Random faults of a cluster over ZooKeeper beside `faults`: connections, sessions, ZooKeeper itself and elections."""

from __future__ import annotations

import asyncio
import random

from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import Delete
from simulation.faults import WeightedFault
from simulation.trace import Trace
from simulation.zookeeper_brokers import ZooKeeperBrokers


class ZooKeeperFaults:
    """The faults for `Faults.add`."""

    def __init__(self, chance: random.Random, cluster: ZooKeeperBrokers, trace: Trace) -> None:
        self._chance = chance
        self._cluster = cluster
        self._zookeeper = cluster.zookeeper
        self._trace = trace
        self.faults: tuple[WeightedFault, ...] = (
            (4, self._cut_off_from_zookeeper),
            (3, self._lose_connection),
            (3, self._expire),
            (2, self._slow_zookeeper_down),
            (2, self._stop_zookeeper),
            (4, self._move_controller),
        )

    def _any_broker(self) -> int:
        """Choose a broker, the controller more often than others."""
        controller = self._cluster.controller_id
        if controller is not None and self._chance.random() < 0.5:
            return controller
        return self._chance.choice(self._cluster.ids)

    async def _cut_off_from_zookeeper(self) -> None:
        """Cut a broker off from ZooKeeper, in one direction or both; it still reaches the other brokers."""
        broker = self._any_broker()
        process, session = self._cluster.processes[broker], self._cluster.sessions.get(broker)
        if session is None or not self._cluster.may_fail(broker):
            return
        to_server, to_client, sign = self._chance.choice(
            ((True, False, "->"), (False, True, "<-"), (True, True, "<->"))
        )
        self._trace.add(process.name, f"is cut off from ZooKeeper: {sign}")
        process.call(lambda: self._zookeeper.cut(session, to_server=to_server, to_client=to_client))
        with self._cluster.at_risk(broker):
            await self._wait(0.5, 12)
        self._trace.add(process.name, "reaches ZooKeeper again")
        process.call(self._zookeeper.heal, session)

    async def _lose_connection(self) -> None:
        broker = self._any_broker()
        process, session = self._cluster.processes[broker], self._cluster.sessions.get(broker)
        if session is not None and self._cluster.may_fail(broker):
            self._trace.add(process.name, "loses its connection to ZooKeeper")
            process.call(self._zookeeper.drop, session)

    async def _expire(self) -> None:
        broker = self._any_broker()
        session = self._cluster.sessions.get(broker)
        if session is not None and self._cluster.may_fail(broker):
            self._trace.add(self._cluster.hosts[broker], f"session {session.session_id:x} is expired")
            self._zookeeper.expire(session)

    async def _slow_zookeeper_down(self) -> None:
        self._trace.add("zookeeper", "is slow")
        self._zookeeper.slow_ms = self._chance.choice((20, 200, 900))
        await self._wait(1, 8)
        self._trace.add("zookeeper", "is fast again")
        self._zookeeper.slow_ms = 0

    async def _stop_zookeeper(self) -> None:
        if not self._zookeeper.up:
            return
        self._trace.add("zookeeper", "stops")
        self._zookeeper.stop()
        await self._wait(0.5, 8)
        self._trace.add("zookeeper", "runs again")
        self._zookeeper.start()

    async def _move_controller(self) -> None:
        """Delete the controller's znode, as an administrator does, so that the brokers elect a controller."""
        self._trace.add("admin", f"removes the controller, broker {self._cluster.controller_id}")
        self._zookeeper.force(Delete(paths.CONTROLLER))

    async def _wait(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(least_s, most_s))
