"""Random faults by the seed, up to three at a time. Each fault ends by itself."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Iterable

from odradek_wire.errors import ErrorCode
from simulation.administrator import Administrator
from simulation.cluster import LOG_DIRS, Cluster
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import Direction, MemoryNetwork
from simulation.trace import Trace

CLIENTS = (
    "idempotent-0",
    "idempotent-1",
    "plain-all",
    "plain-one",
    "reader",
    "near",
    "watcher",
    "transactor-0",
    "transactor-1",
    "committed",
    "teller-0",
    "teller-1",
    "keyed",
    "keyed-reader",
    "member-0",
    "member-1",
)
CONCURRENT_FAULTS = (1, 2, 2, 3)
"""The number of faults at a time: a run chooses one of these."""
WeightedFault = tuple[int, Callable[[], Awaitable[None]]]
"""The weight of a fault, and the coroutine function that causes and ends it."""


class Faults:
    """Causes faults for as many virtual seconds as `run` gets."""

    def __init__(
        self,
        *,
        chance: random.Random,
        cluster: Cluster,
        network: MemoryNetwork,
        disk: MemoryDisk,
        trace: Trace,
        administrator: Administrator,
    ) -> None:
        self._chance = chance
        self._cluster = cluster
        self._network = network
        self._disk = disk
        self._trace = trace
        self._administrator = administrator
        self._broken: set[str] = set()
        self._faults: list[WeightedFault] = [
            (6, self._kill),
            (5, self._lose_power),
            (4, self._stop),
            (5, self._partition),
            (3, self._cut_client_off),
            (4, self._reset),
            (3, self._slow_link),
            (3, self._slow_disk),
            (3, self._break_disk),
            (2, self._move_wall_clock),
            (2, self._pause),
            (1, self._restart_all),
            (4, self._administrator.reassign),
            (3, self._administrator.elect_preferred_leaders),
            (3, self._administrator.configure),
            (2, self._administrator.create_and_delete_topic),
            (2, self._administrator.delete_records),
        ]

    def add(self, faults: Iterable[WeightedFault]) -> None:
        self._faults.extend(faults)

    async def run(self, duration_s: float) -> None:
        # Each run has weights of its own: otherwise, three faults of a kind in a row would be very rare.
        weights = [weight * self._chance.choice((0, 1, 1, 4)) for weight, _ in self._faults]
        weights[0] += 1
        faults = [kind for _, kind in self._faults]
        loop = asyncio.get_running_loop()
        end = loop.time() + duration_s
        slots = asyncio.Semaphore(self._chance.choice(CONCURRENT_FAULTS))

        async def one() -> None:
            try:
                await self._chance.choices(faults, weights)[0]()
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                await slots.acquire()
                await asyncio.sleep(self._chance.expovariate(0.8))
                group.create_task(one())
        for process in self._cluster.processes:
            process.clock.restore_wall()
        # Concurrently, because a broker over ZooKeeper may fail only when another one has recovered.
        await asyncio.gather(*(self._restart_if_offline(broker) for broker in self._cluster.ids))

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        await self._take_down(self._cluster.kill)

    async def _lose_power(self) -> None:
        await self._take_down(self._cluster.lose_power)

    async def _stop(self) -> None:
        await self._take_down(self._cluster.stop)

    async def _take_down(self, end: Callable[[int], Awaitable[bool]]) -> None:
        broker = self._chance.choice(self._cluster.ids)
        if await end(broker):
            await self._wait(0.1, 8)
            await self._cluster.start_broker(broker)

    async def _restart_all(self) -> None:
        await self._cluster.restart_all(orderly=self._chance.random() < 0.5)

    # -- the network --------------------------------------------------------------------------------------------------

    async def _partition(self) -> None:
        """Cut one broker off from one or all others, in one direction or both; clients still reach all brokers."""
        hosts = list(self._cluster.hosts)
        self._chance.shuffle(hosts)
        one, *others = hosts
        if self._chance.random() < 0.5:
            others = others[:1]
        await self._block(one, others)

    async def _cut_client_off(self) -> None:
        others = self._chance.sample(self._cluster.hosts, self._chance.randint(1, len(self._cluster.hosts)))
        await self._block(self._chance.choice(CLIENTS), others)

    async def _block(self, one: str, others: list[str]) -> None:
        directions: list[Direction] = [(one, other) for other in others]
        back: list[Direction] = [(other, one) for other in others]
        directions, sign = self._chance.choice(((directions, "->"), (back, "<-"), (directions + back, "<->")))
        self._trace.add("network", f"is blocked: {one} {sign} {', '.join(others)}")
        self._network.block(directions)
        await self._wait(0.5, 10)
        self._trace.add("network", f"is open again: {one} {sign} {', '.join(others)}")
        self._network.unblock(directions)

    async def _reset(self) -> None:
        a = self._chance.choice(self._cluster.hosts)
        b = self._chance.choice([host for host in (*self._cluster.hosts, *CLIENTS) if host != a])
        count = self._network.reset_connections(a, b)
        self._trace.add("network", f"{count} connections reset: {a} - {b}")

    async def _slow_link(self) -> None:
        a, b = self._chance.sample(self._cluster.hosts, 2)
        seconds = self._chance.choice((0.02, 0.1, 0.6))
        self._trace.add("network", f"{a} -> {b} has {seconds:g} s more latency")
        self._network.slow_down((a, b), seconds)
        await self._wait(1, 10)
        self._network.slow_down((a, b), 0.0)

    # -- disks and clocks ---------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        host = self._chance.choice((*self._cluster.hosts, "controller"))
        self._trace.add(host, "has a slow disk")
        self._disk.sync_s[host] = self._chance.choice((0.05, 1.0))
        await self._wait(1, 10)
        self._disk.sync_s.pop(host, None)

    async def _break_disk(self) -> None:
        """Break one log directory for a while. Its broker must restart afterwards."""
        broker = self._chance.choice(self._cluster.ids)
        directory = f"/{self._cluster.hosts[broker]}/{self._chance.choice(LOG_DIRS[: self._cluster.log_dirs])}"
        with self._cluster.allow_disk_failure(broker) as allowed:
            if allowed and directory not in self._broken:
                await self._break(broker, directory)

    async def _break(self, broker: int, directory: str) -> None:
        self._broken.add(directory)
        error = self._chance.choice((errno.ENOSPC, errno.EIO))
        self._trace.add(self._cluster.hosts[broker], f"{errno.errorcode[error]} in {directory}")
        self._disk.fail(directory, error, calls=self._chance.choice((0, 3, 30)))
        await self._wait(0.5, 8)
        self._disk.heal(directory)
        self._trace.add(self._cluster.hosts[broker], f"{directory} works again")
        self._broken.remove(directory)
        await self._restart_if_offline(broker)

    async def _restart_if_offline(self, broker: int) -> None:
        """Restart a broker with an offline log directory or partition."""
        while (node := self._cluster.running.get(broker)) is not None and (
            any(each.offline for each in node.directories)
            # A partition that the broker could not open in a directory that is online.
            or any(each.error == ErrorCode.KAFKA_STORAGE_ERROR for each in node.broker.partitions)
        ):
            if not await self._cluster.kill(broker):
                await asyncio.sleep(0.5)
        await self._cluster.start_broker(broker)

    async def _move_wall_clock(self) -> None:
        by_ms = self._chance.choice((-3_600_000, -1_000, 1_000, 3_600_000))
        process = self._chance.choice(self._cluster.processes)
        self._trace.add(process.name, f"wall clock moves by {by_ms} ms")
        process.clock.advance_wall(by_ms)

    async def _pause(self) -> None:
        """Pause a process, possibly for longer than its session timeout."""
        process = self._chance.choice(self._cluster.processes)
        await self._cluster.pause(process, self._chance.choice((0.3, 3, 9)) * self._chance.uniform(0.8, 1.2))

    async def _wait(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(least_s, most_s))
