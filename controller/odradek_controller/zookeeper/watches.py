"""The controller's watches: they run the znode readers when other clients change znodes.

Owns the watches, and the order in which readers run: one at a time, and no other change of the image meanwhile. Leaves
reading to `znode_readers`. A reader registers its watch, reads all its znodes and compares them with the image, because
several changes may give one event, and watches may be lost with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odradek_log.reporting import Reporter

from ..image import MetadataDelta
from ..store import NotControllerError
from . import paths
from .client import ConnectionLossError, SessionEvent, SessionExpiredError, WatchedEvent, ZooKeeper
from .controller import ZooKeeperController
from .store import ZooKeeperStore
from .znode_readers import ZnodeReaders

_PAUSE_MS = 1_000
"""The time before a failed reader runs again, unless an event comes first."""


class Watches:
    """The watches of one term. Calls `log_dir_failed` with the ids of brokers that report a failed log directory."""

    def __init__(
        self,
        zk: ZooKeeper,
        controller: ZooKeeperController,
        store: ZooKeeperStore,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[int], Awaitable[None]],
        randbytes: Callable[[int], bytes],
        log_dir_failed: Callable[[list[int]], None],
        reporter: Reporter,
    ) -> None:
        self._zk = zk
        self._controller = controller
        self._sleep = sleep
        self._reporter = reporter
        self._watched: set[str] = set()
        self._readers = ZnodeReaders(
            zk,
            controller.context,
            store,
            controller.deletions,
            watch=self._watch,
            unwatch=self._watched.discard,
            run_again=self._schedule,
            now_ms=now_ms,
            randbytes=randbytes,
            log_dir_failed=log_dir_failed,
            reporter=reporter,
        )
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._stop: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._pauses: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Return when all readers have run once. Raises NotControllerError."""
        self._stop.append(self._zk.listen(self._session_event))
        self._schedule_all()
        await self._run_due_readers()
        self._stop.append(self._controller.subscribe(self._applied))
        self._controller.deletions.on_replicas_deleted = lambda: self._schedule(paths.DELETE_TOPICS)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        for stop in self._stop:
            stop()
        task, self._task = self._task, None
        for each in filter(None, (task, *self._pauses.values())):
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._schedule_all()

    def _schedule_all(self) -> None:
        """Schedule all readers, as at the start and after a lost connection, when there are no watches."""
        self._watched.clear()
        self._readers.forget_unchanged_topics()
        self._due.update(dict.fromkeys(self._readers.table))
        self._wake.set()

    def _schedule(self, path: str) -> None:
        self._due[path] = None
        self._wake.set()

    def _watch(self, path: str) -> Callable[[WatchedEvent], None] | None:
        """Return the watch to register with a read; None if one is registered already."""
        if path in self._watched:
            return None
        self._watched.add(path)
        return self._znode_changed

    def _znode_changed(self, event: WatchedEvent) -> None:
        """Schedule the reader of the znode, or of its parent for a broker or a topic."""
        self._watched.discard(event.path)
        folder, _, name = event.path.rpartition("/")
        if folder == paths.TOPICS:
            self._readers.forget_unchanged_topic(name)
        self._schedule(event.path if event.path in self._readers.table else folder)

    def _applied(self, delta: MetadataDelta) -> None:
        """Schedule the readers of the requests that a change may have completed."""
        for path in self._readers.affected_by(delta):
            self._schedule(path)

    async def _run(self) -> None:
        # This error means that the term has ended.
        with suppress(NotControllerError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._run_due_readers()

    async def _run_due_readers(self) -> None:
        while self._due:
            path = next(iter(self._due))
            del self._due[path]
            try:
                await self._zk.until_connected()
                await self._controller.append_from(self._readers.table[path])
            except ConnectionLossError:
                self._schedule_all()
            except SessionExpiredError:
                raise NotControllerError("the session has ended") from None
            except NotControllerError:
                raise
            except Exception as error:
                self._reporter.error("changes in ZooKeeper could not be applied", path=path, exc_info=error)
                self._schedule_later(path)

    def _schedule_later(self, path: str) -> None:
        """Schedule a failed reader again after a pause, because there may be no event."""

        async def later() -> None:
            await self._sleep(_PAUSE_MS)
            del self._pauses[path]
            self._schedule(path)

        if path not in self._pauses:
            self._pauses[path] = asyncio.create_task(later())
