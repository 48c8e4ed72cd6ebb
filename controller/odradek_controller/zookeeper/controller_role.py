"""A broker's part as the controller of a cluster in ZooKeeper: nobody, a candidate, or the controller for a term.

The composition of what the package holds: an election, and for each term that is won a store, a `Controller` on it, and
watches. A term that is over leaves nothing behind; the next begins by reading everything anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from odradek_log.reporting import Reporter
from odradek_wire.message import Message

from ..controller import Controller
from ..image import ClusterImage
from ..store import NotControllerError
from .client import ZooKeeper
from .controller import ZooKeeperController
from .controller_election import ControllerCandidate
from .fenced import ControllerTerm
from .reconciling import begin_term
from .store import ZooKeeperStore
from .watches import Watches

_PAUSE_MS = 1_000
"""How long who could not begin a term leaves it to the others, before it tries again."""


class ActiveController:
    """One term as the controller, from its election to its end."""

    def __init__(
        self, term: ControllerTerm, store: ZooKeeperStore, controller: ZooKeeperController, watches: Watches
    ) -> None:
        self.term = term
        self.store = store
        self.controller = controller
        self.watches = watches
        self.task: asyncio.Task[None] | None = None
        self.ready = False


class ControllerRole:
    """`elected` is called with the controller when it has read everything and is ready; `resigned` when that
    controller's term is over, and nothing it is asked for can be done any more. `seen` gets the id of whoever is the
    controller, or NOBODY. `log_dir_failed` gets the ids of brokers that have lost a log directory: they are to be asked
    what of it they held.

    All are called on the loop, synchronously; listeners of the controller are to be subscribed in `elected`.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        broker_id: int,
        *,
        static: Mapping[str, str],
        rng: random.Random,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
        sleep: Callable[[int], Awaitable[None]],
        elected: Callable[[ZooKeeperController], None],
        resigned: Callable[[], None],
        seen: Callable[[int], None] = lambda broker_id: None,
        log_dir_failed: Callable[[list[int]], None],
        reporter: Reporter,
    ) -> None:
        """`now_ms` and `sleep` (milliseconds) are of the clock of timeouts, `wall_ms` is of that of records."""
        self._zk = zk
        self._broker_id = broker_id
        self._static = dict(static)
        self._rng = rng
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._sleep = sleep
        self._elected = elected
        self._resigned = resigned
        self._log_dir_failed = log_dir_failed
        self._reporter = reporter
        self._active: ActiveController | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self._candidate = ControllerCandidate(
            zk,
            broker_id,
            wall_ms=wall_ms,
            sleep=sleep,
            elected=self._begin,
            resigned=self._end,
            seen=seen,
            reporter=reporter,
        )

    @property
    def controller(self) -> ZooKeeperController | None:
        """The controller, if this broker is it and is ready."""
        active = self._active
        return active.controller if active is not None and active.ready else None

    @property
    def controller_id(self) -> int:
        """Who was last seen to be the controller, or NOBODY."""
        return self._candidate.controller_id

    def start(self) -> None:
        self._candidate.start()

    async def close(self) -> None:
        """Resign, and be no candidate any more."""
        await self._candidate.close()
        await asyncio.gather(*self._ended)

    def _begin(self, term: ControllerTerm) -> None:
        store = ZooKeeperStore(
            self._zk,
            term,
            node_id=self._broker_id,
            lost=lambda why: self._lost(term, why),
            wall_ms=self._wall_ms,
            randbytes=self._rng.randbytes,
            reporter=self._reporter,
        )
        controller = ZooKeeperController(
            store,
            node_id=self._broker_id,
            static=self._static,
            rng=self._rng,
            reporter=self._reporter,
        )
        watches = Watches(
            self._zk,
            controller,
            store,
            now_ms=self._now_ms,
            sleep=self._sleep,
            randbytes=self._rng.randbytes,
            log_dir_failed=self._log_dir_failed,
            reporter=self._reporter,
        )
        active = self._active = ActiveController(term, store, controller, watches)
        active.task = asyncio.create_task(self._open(active))

    async def _open(self, active: ActiveController) -> None:
        controller = active.controller
        try:
            await controller.open()
            await controller.reconcile(partial(_first, active.store, controller))
            await active.watches.start()
            if self._active is active:
                active.ready = True
                self._elected(controller)
        except NotControllerError:
            return
        except Exception as error:
            self._reporter.error("a controller cannot begin", epoch=active.term.epoch, exc_info=error)
            self._candidate.resign(active.term, pause_ms=_PAUSE_MS)

    def _lost(self, term: ControllerTerm, why: str) -> None:
        """Whoever is the controller then reads what is really there; it may be us."""
        self._reporter.warning("this is no more the controller", epoch=term.epoch, why=why)
        self._candidate.resign(term)

    def _end(self) -> None:
        active, self._active = self._active, None
        assert active is not None, "what ends has begun"
        active.store.end()
        if active.ready:
            self._resigned()
        ended = asyncio.create_task(self._close_term(active))
        self._ended.add(ended)
        ended.add_done_callback(self._ended.discard)

    async def _close_term(self, active: ActiveController) -> None:
        assert active.task is not None
        active.task.cancel()
        with suppress(asyncio.CancelledError):
            await active.task
        await active.watches.close()
        await active.controller.close()


async def _first(store: ZooKeeperStore, controller: Controller, image: ClusterImage) -> Sequence[Message]:
    return begin_term(image, controller.context, store.znode_cache.restarted_in_sync)
