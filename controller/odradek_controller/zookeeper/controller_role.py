"""A broker's controller role in ZooKeeper mode: a candidate, and the controller in each term for which it is elected.

Composes the election, and for each term a new store, controller and watches, which read the whole cluster again. Leaves
the election to `controller_election` and the requests to brokers to the broker.
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
from .reconciling import first_records
from .store import ZooKeeperStore
from .watches import Watches

_PAUSE_MS = 1_000
"""The time that this broker leaves to other candidates after it failed to begin a term."""


class ActiveController:
    """The parts of the controller in one term."""

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
    """Calls `elected` with the controller when it is ready, and `resigned` when its term has ended.

    Calls `log_dir_failed` with the ids of brokers that report a failed log directory. All calls are on the loop.
    Subscribe to the controller in `elected`.
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
        log_dir_failed: Callable[[list[int]], None],
        reporter: Reporter,
    ) -> None:
        """`now_ms` and `sleep`, which takes milliseconds, use the monotonic clock; `wall_ms` is for timestamps."""
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
        self._closing: set[asyncio.Task[None]] = set()
        self._candidate = ControllerCandidate(
            zk,
            broker_id,
            wall_ms=wall_ms,
            sleep=sleep,
            elected=self._begin_term,
            resigned=self._end_term,
            reporter=reporter,
        )

    @property
    def controller(self) -> ZooKeeperController | None:
        """The controller, if this broker is elected and ready."""
        active = self._active
        return active.controller if active is not None and active.ready else None

    @property
    def controller_id(self) -> int:
        """The id of the last known controller, or NO_CONTROLLER."""
        return self._candidate.controller_id

    def start(self) -> None:
        self._candidate.start()

    async def close(self) -> None:
        """Resign, and end the candidacy."""
        await self._candidate.close()
        await asyncio.gather(*self._closing)

    def _begin_term(self, term: ControllerTerm) -> None:
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
            await controller.append_from(partial(_first_records, active.store, controller))
            await active.watches.start()
            if self._active is active:
                active.ready = True
                self._elected(controller)
        except NotControllerError:
            return
        except Exception as error:
            self._reporter.error("controller cannot start its term", epoch=active.term.epoch, exc_info=error)
            self._candidate.resign(active.term, pause_ms=_PAUSE_MS)

    def _lost(self, term: ControllerTerm, why: str) -> None:
        """Resign. The next controller, perhaps on this broker, reads the cluster again."""
        self._reporter.warning("controller term ended", epoch=term.epoch, why=why)
        self._candidate.resign(term)

    def _end_term(self) -> None:
        active, self._active = self._active, None
        assert active is not None, "no term has begun"
        active.store.end()
        if active.ready:
            self._resigned()
        closing = asyncio.create_task(self._close_term(active))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_term(self, active: ActiveController) -> None:
        assert active.task is not None
        active.task.cancel()
        with suppress(asyncio.CancelledError):
            await active.task
        await active.watches.close()
        await active.controller.close()


async def _first_records(store: ZooKeeperStore, controller: Controller, image: ClusterImage) -> Sequence[Message]:
    return first_records(image, controller.context, store.znode_cache.restarted_in_sync)
