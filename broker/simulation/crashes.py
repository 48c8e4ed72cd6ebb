"""The faults of a single broker: crashes of its process at disk operations, and failures of its disk.

Most crash points name the kind of the operation, and each kind seen so far is equally likely: most operations are
appends and syncs, so that a crash at a checkpoint would otherwise be rare. The process reaches some crash points while
it starts or stops.
"""

from __future__ import annotations

import asyncio
import errno
import random

from simulation.administrator import Administrator
from simulation.crash_points import CrashingDisk, OperationKind
from simulation.memory_disk import MemoryDisk
from simulation.single_broker import DIRECTORY, SingleBroker
from simulation.trace import Trace

CRASHES = 10
"""The number of crashes in a run."""
OPERATIONS_MAX = 60
"""The largest number of operations until a crash at an operation of any kind."""
WAIT_S = 2.5
"""The time in which the process may reach the crash point; then the simulation kills it."""


class Crashes:
    """Crashes a single broker `CRASHES` times. `loses_unsynced`: the disk may lose unsynced data in a crash."""

    def __init__(
        self,
        *,
        chance: random.Random,
        broker: SingleBroker,
        disk: MemoryDisk,
        trace: Trace,
        administrator: Administrator,
        loses_unsynced: bool,
    ) -> None:
        self._chance = chance
        self._broker = broker
        self._points: CrashingDisk = broker.points
        self._disk = disk
        self._trace = trace
        self._administrator = administrator
        self._loses_unsynced = loses_unsynced

    async def run(self) -> None:
        chance = self._chance
        while self._broker.crashes < CRASHES:
            await asyncio.sleep(chance.uniform(0.05, 1.0) if chance.random() < 0.8 else chance.uniform(3, 6))
            administration = asyncio.ensure_future(self._administer())
            what = chance.random()
            if what < 0.1:
                await self._break_disk()
            elif what < 0.2:
                await self._stop()
            else:
                if not self._points.dead:
                    self._set_crash_point(OPERATIONS_MAX)
                await self._until_dead()
            await self._crash()
            await administration
        if self._points.dead:
            await self._broker.crash_and_restart(lose_unsynced=self._loses_unsynced)
        self._points.disarm()

    async def _crash(self) -> None:
        lose_unsynced = self._loses_unsynced and self._chance.random() < 0.6
        await self._broker.crash_process(lose_unsynced=lose_unsynced)
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        if self._chance.random() < 0.35:
            self._set_crash_point(OPERATIONS_MAX // 3)
        await self._broker.restart(lose_unsynced=lose_unsynced)

    async def _stop(self) -> None:
        """Restart the broker with a controlled shutdown; it may reach a crash point meanwhile."""
        self._set_crash_point(OPERATIONS_MAX // 2)
        await self._broker.restart_all(orderly=True)

    def _set_crash_point(self, most: int) -> None:
        chance = self._chance
        seen = sorted(self._points.done)
        if seen and chance.random() < 0.6:
            kind: OperationKind | None = chance.choice(seen)
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

    async def _administer(self) -> None:
        chance = self._chance
        what = chance.choice((self._administrator.configure, self._administrator.delete_records, None, None, None))
        if what is not None:
            await asyncio.sleep(chance.uniform(0, 0.5))
            await what()
        elif chance.random() < 0.3:
            await self._administrator.create_and_delete_topic()
