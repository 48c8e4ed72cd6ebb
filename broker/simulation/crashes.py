"""Crashes of a single broker: its process ends at a random disk operation, again and again, or an operation fails.

Half of the crash points are drawn by kind of operation, each kind with the same probability: most disk operations
append or sync, so that a draw among all operations would hardly ever choose a checkpoint. Some crashes happen while the
process starts or stops.
"""

from __future__ import annotations

import asyncio
import errno
import random

from simulation.administrator import Administrator
from simulation.crash_points import CrashingDisk, Kind
from simulation.memory_disk import MemoryDisk
from simulation.single_broker import DIRECTORY, SingleBroker
from simulation.trace import Trace

CRASHES = 10
"""The number of crashes in a run."""
OPERATIONS_MAX = 60
WAIT_S = 2.5
"""The time for reaching the crash point; after it, the process ends anyway."""


class Crashes:
    """Crashes a single broker `CRASHES` times. `forgets`: the disk may lose unsynced data."""

    def __init__(
        self,
        chance: random.Random,
        broker: SingleBroker,
        disk: MemoryDisk,
        trace: Trace,
        administrator: Administrator,
        *,
        forgets: bool,
    ) -> None:
        self._chance = chance
        self._broker = broker
        self._points: CrashingDisk = broker.points
        self._disk = disk
        self._trace = trace
        self._administrator = administrator
        self._forgets = forgets

    async def run(self) -> None:
        chance = self._chance
        while self._broker.crashes < CRASHES:
            await asyncio.sleep(chance.uniform(0.05, 1.0) if chance.random() < 0.8 else chance.uniform(3, 6))
            meanwhile = asyncio.ensure_future(self._meanwhile())
            what = chance.random()
            if what < 0.1:
                await self._break_disk()
            elif what < 0.2:
                await self._stop()
            else:
                if not self._points.dead:
                    self._aim(OPERATIONS_MAX)
                await self._until_dead()
            await self._crash()
            await meanwhile
        if self._points.dead:
            await self._broker.crash(forget=self._forgets)
        self._points.disarm()

    async def _crash(self) -> None:
        forget = self._forgets and self._chance.random() < 0.6
        await self._broker.end_by_crash(forget=forget)
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        if self._chance.random() < 0.35:
            self._aim(OPERATIONS_MAX // 3)
        await self._broker.begin_again(forget=forget)

    async def _stop(self) -> None:
        """Restart the broker in order; it may crash on the way."""
        self._aim(OPERATIONS_MAX // 2)
        await self._broker.restart_all(orderly=True)

    def _aim(self, most: int) -> None:
        chance = self._chance
        seen = sorted(self._points.done)
        if seen and chance.random() < 0.6:
            kind: Kind | None = chance.choice(seen)
            number = 1 + int(chance.expovariate(0.7))
        else:
            kind, number = None, chance.randint(1, most)
        self._trace.add("crash", f"at the {number}. {' of '.join(kind) if kind else 'operation'} from now")
        self._points.crash_at(kind, number)

    async def _until_dead(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_S
        while loop.time() < end and not self._points.dead:
            await asyncio.sleep(0.01)

    async def _break_disk(self) -> None:
        error = self._chance.choice((errno.ENOSPC, errno.EIO))
        calls = self._chance.choice((0, 3, 30, 100))
        self._trace.add("disk", f"{errno.errorcode[error]} after {calls} calls")
        self._disk.fail(DIRECTORY, error, calls=calls)
        await asyncio.sleep(self._chance.uniform(0.2, 2))
        self._disk.heal(DIRECTORY)
        self._trace.add("disk", "works again")

    async def _meanwhile(self) -> None:
        chance = self._chance
        what = chance.choice((self._administrator.configure, self._administrator.delete_records, None, None, None))
        if what is not None:
            await asyncio.sleep(chance.uniform(0, 0.5))
            await what()
        elif chance.random() < 0.3:
            await self._administrator.come_and_go()
