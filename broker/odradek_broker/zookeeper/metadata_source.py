"""The metadata source of ZooKeeper mode.

Owns the listeners of deltas. Leaves making the deltas, from control requests and watched znodes, to
`control_request_adapter`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace

from odradek_broker.logger import Logger
from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_controller.levels import Emulation
from odradek_controller.zookeeper.api_ranges import KRAFT_ONLY_APIS, zookeeper_apis
from odradek_wire.uuid import Uuid

Listener = Callable[[MetadataDelta], AsyncIterator[None] | None]


class ZooKeeperSource:
    """The broker's `MetadataSource`. Call `publish` with each delta, one after the other."""

    emulation = Emulation.KAFKA_3_9
    apis = zookeeper_apis()
    refuses_expired_timeouts = False
    unserved_apis: Collection[int] = KRAFT_ONLY_APIS
    # Brokers of Kafka 3.9 support no feature over ZooKeeper.
    stores_features = False
    stores_client_metrics = False

    def __init__(self, adapter: ControlRequestAdapter, sleep: Callable[[int], Awaitable[None]], log: Logger) -> None:
        """`sleep` takes milliseconds."""
        self._adapter = adapter
        self._sleep = sleep
        self._log = log
        self._listeners: list[Listener] = []
        self._delta_events: set[asyncio.Event] = set()
        """Events of waiting tasks, set after each delta."""

    @property
    def image(self) -> ClusterImage:
        return self._adapter.image

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """As `MetadataSource.subscribe`. The first delta is incomplete, because no controller has sent this broker all
        its replicas yet."""
        image = self.image
        first = MetadataDelta.between(ClusterImage(cluster_id=image.cluster_id), image)
        applied = listener(replace(first, complete=False))
        assert applied is None, "the first delta is applied immediately"
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    async def publish(self, delta: MetadataDelta) -> None:
        """Call every listener. The exception of a listener is logged, because the change is already made."""
        try:
            for listener in tuple(self._listeners):
                try:
                    steps = listener(delta)
                    if steps is not None:
                        await _run_to_end(steps)
                except Exception as error:
                    self._log.error("listener failed to apply a metadata change", exc_info=error)
        finally:  # also if the caller is cancelled while a large delta is applied
            for event in self._delta_events:
                event.set()

    async def until_removed(self, topic_ids: Collection[Uuid], timeout_ms: int) -> None:
        """Return when the image has none of these topics, or after the timeout."""
        changed = asyncio.Event()
        self._delta_events.add(changed)
        timeout = asyncio.ensure_future(self._sleep(timeout_ms))
        try:
            while not timeout.done() and not self.image.topics_by_id.keys().isdisjoint(topic_ids):
                changed.clear()
                change = asyncio.ensure_future(changed.wait())
                await asyncio.wait((timeout, change), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            self._delta_events.remove(changed)
            timeout.cancel()


async def _run_to_end(steps: AsyncIterator[None]) -> None:
    """Take all steps even if the caller is cancelled, because a delta must be applied as a whole before the next."""

    async def run() -> None:
        async for _ in steps:
            pass

    task = asyncio.ensure_future(run())
    cancelled = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
