"""The election of the controller, the broker that creates `/controller` and increments `/controller_epoch`.

Owns the candidacy of one broker, its terms, and the id of the current controller. One transaction creates `/controller`
and sets `/controller_epoch`; it fails if another broker has changed either of them. Leaves the work of an elected
controller to `controller_role`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odradek_log.reporting import Reporter

from . import paths
from .client import (
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
    Set,
    Stat,
    WatchedEvent,
    ZooKeeper,
    ZooKeeperError,
)
from .fenced import ControllerTerm
from .znodes import ControllerZnode, decode_number, encode_number

NO_CONTROLLER = -1
_RETRY_MS = 1_000
"""The time before a failed election is tried again."""


class ControllerCandidate:
    """A broker that tries to become the controller when there is none.

    Calls `elected` at the start of each term, and `resigned` at its end: after `resign` or `close`, an expired session,
    or the election of another broker. Both calls are on the loop.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        broker_id: int,
        *,
        wall_ms: Callable[[], int],
        sleep: Callable[[int], Awaitable[None]],
        elected: Callable[[ControllerTerm], None],
        resigned: Callable[[], None],
        reporter: Reporter,
    ) -> None:
        """`sleep` takes milliseconds."""
        self._zk = zk
        self._broker_id = broker_id
        self._wall_ms = wall_ms
        self._sleep = sleep
        self._elected = elected
        self._resigned = resigned
        self._reporter = reporter
        self._term: ControllerTerm | None = None
        self._resigned_term: ControllerTerm | None = None
        """The term from which this broker has resigned, until its `/controller` is deleted."""
        self._controller_id = NO_CONTROLLER
        self._wake = asyncio.Event()
        self._pause_ms = 0
        self._watching = False
        """Whether a watch of `/controller` is registered, or its registration has been sent."""
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    @property
    def term(self) -> ControllerTerm | None:
        """The current term of this broker; None if it is not the controller."""
        return self._term

    @property
    def controller_id(self) -> int:
        """The id of the last known controller, or NO_CONTROLLER."""
        return self._controller_id

    def start(self) -> None:
        self._unlisten = self._zk.listen(self._session_event)
        self._wake.set()
        self._task = asyncio.create_task(self._run())

    def resign(self, term: ControllerTerm, *, pause_ms: int = 0) -> None:
        """Resign from this term, if it has not ended. Any broker can be elected next; this one waits for the pause."""
        if term == self._term:
            self._resigned_term = term
            self._pause_ms = pause_ms
            self._end_term()
            self._wake.set()

    async def close(self) -> None:
        """End the candidacy. Deletes `/controller` if this broker is the controller and ZooKeeper is reachable."""
        self._unlisten()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._term is not None:
            self._resigned_term = self._term
            self._end_term()
        if self._zk.connected:
            with suppress(ZooKeeperError):
                await self._delete_controller_znode()

    # -- events -------------------------------------------------------------------------------------------------------

    def _session_event(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.EXPIRED:
                self._resigned_term = None
                self._end_term()
            case SessionEvent.CONNECTED:
                self._watching = False
                self._wake.set()

    def _znode_changed(self, event: WatchedEvent) -> None:
        self._watching = False
        self._wake.set()

    def _end_term(self) -> None:
        if self._term is not None:
            self._term = None
            self._resigned()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._zk.until_connected()
                await self._elect_or_resign()
            except (ConnectionLossError, SessionExpiredError):
                continue  # CONNECTED wakes this task
            except Exception as error:
                self._reporter.error("controller election failed, retrying", exc_info=error)
                await self._sleep(_RETRY_MS)
                self._wake.set()  # the cause may end without an event

    async def _elect_or_resign(self) -> None:
        await self._delete_controller_znode()
        pause_ms, self._pause_ms = self._pause_ms, 0
        if pause_ms:
            await self._sleep(pause_ms)
        controller_id, stat = await self._read_controller()
        ours = stat is not None and stat.ephemeral_owner == self._zk.session_id
        if self._term is not None and not ours:
            self._end_term()
        self._controller_id = controller_id
        if stat is None:
            await self._try_to_elect()
        elif ours and self._term is None:
            await self._recognize(stat)

    async def _read_controller(self) -> tuple[int, Stat | None]:
        """Return the controller's id and the `Stat` of its znode, and register a watch."""
        while True:
            # `_watching` is set before the response arrives, because the watch may fire or be lost before that.
            watch, self._watching = None if self._watching else self._znode_changed, True
            stat = await self._zk.exists(paths.CONTROLLER, watch)
            if stat is None:
                return NO_CONTROLLER, None
            with suppress(NoNodeError):
                data, stat = await self._zk.get(paths.CONTROLLER)
                return ControllerZnode.decode(paths.CONTROLLER, data).broker_id, stat

    async def _try_to_elect(self) -> None:
        """Try to become the controller (Kafka's registerControllerAndIncrementControllerEpoch)."""
        session_id = self._zk.session_id
        epoch, version = await self._last_epoch()
        data = ControllerZnode(self._broker_id, self._wall_ms()).encode()
        create = Create(paths.CONTROLLER, data, ephemeral=True)
        try:
            await self._zk.multi([create, Set(paths.CONTROLLER_EPOCH, encode_number(epoch + 1), version)])
        except (MultiError, ConnectionLossError):
            # Another broker was elected; or this broker was, in a request whose response was lost.
            self._wake.set()
            return
        self._begin_term(ControllerTerm(epoch + 1, version + 1, session_id))

    async def _last_epoch(self) -> tuple[int, int]:
        """Return the controller epoch, which starts at 0, and the version of its znode."""
        with suppress(NodeExistsError):
            if await self._zk.exists(paths.CONTROLLER_EPOCH) is None:
                await self._zk.create(paths.CONTROLLER_EPOCH, encode_number(0))
        data, stat = await self._zk.get(paths.CONTROLLER_EPOCH)
        return decode_number(paths.CONTROLLER_EPOCH, data), stat.version

    async def _recognize(self, stat: Stat) -> None:
        """Begin the term of an election whose response was lost: `/controller` belongs to this session."""
        data, epoch_stat = await self._zk.get(paths.CONTROLLER_EPOCH)
        _, stat_after = await self._read_controller()
        if stat_after == stat:
            epoch = decode_number(paths.CONTROLLER_EPOCH, data)
            self._begin_term(ControllerTerm(epoch, epoch_stat.version, stat.ephemeral_owner))
        else:
            self._wake.set()

    def _begin_term(self, term: ControllerTerm) -> None:
        if term.session_id != self._zk.session_id:
            self._wake.set()  # the session expired before the response arrived
            return
        self._term = term
        self._controller_id = self._broker_id
        self._elected(term)

    async def _delete_controller_znode(self) -> None:
        """Delete `/controller` of the term from which this broker has resigned, but not of a later term."""
        term = self._resigned_term
        if term is None:
            return
        if term.session_id == self._zk.session_id:
            with suppress(MultiError):
                fence = Check(paths.CONTROLLER_EPOCH, term.epoch_version)
                await self._zk.multi([fence, Delete(paths.CONTROLLER)])
        self._resigned_term = None
