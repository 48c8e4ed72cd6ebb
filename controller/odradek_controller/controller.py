"""The controller: decides requests against the image, stores their records, replays them, and publishes the change.

Owns the current image and the order of changes. Leaves decisions to `commands` and storage to the store. All methods
run on one event loop; the controller stores and replays one change before it decides the next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_log.reporting import Reporter, StandardReporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest

from .commands import brokers
from .commands.context import CommandContext
from .commands.dispatch import COMMANDS, Decision, command
from .commands.min_isr import explicit_min_isr
from .configs.effective import BrokerLayers
from .image import ClusterImage, MetadataDelta
from .levels import Emulation, Features
from .principal import ANONYMOUS, Principal
from .replay import replay
from .store import MetadataStore

if TYPE_CHECKING:
    from odradek_wire.messages.delete_topics import DeleteTopicsResponse

_LARGE_CHANGE = 1000
"""A change with more records is replayed in another turn of the event loop than it is decided and stored."""

Listener = Callable[[MetadataDelta], AsyncIterator[None] | None]
Response = TypeVar("Response")


class Controller:
    """The controller of a cluster. Open it, subscribe, and submit requests; `image` is the current image."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        node_id: int,
        static: Mapping[str, str] | None = None,
        emulation: Emulation = Emulation.UNION,
        features: Features | None = None,
        rng: random.Random | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """`features` are the levels that UpdateFeatures may set, by default all that the release supports."""
        rng = rng or random.SystemRandom()
        self.store = store
        self.emulation = emulation
        self.context = CommandContext(
            node_id=node_id,
            randbytes=rng.randbytes,
            randbelow=rng.randrange,
            static=dict(static or {}),
            emulation=emulation,
            features=features,
            quorum=store.quorum,
        )
        self.image = ClusterImage()
        self._reporter = reporter or StandardReporter()
        self._listeners: list[Listener] = []
        self._registered: set[int] = set()
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Become the only writer of the store, and load the image from it."""
        self.image = await self.store.open()
        await self._change(lambda image: (explicit_min_isr(image, self.context), None))

    async def close(self) -> None:
        """Fence the brokers that registered with this controller, and close the store.

        The next controller then need not wait until the sessions of those brokers expire. Listeners get no delta.
        """
        self._listeners.clear()
        # After a disk failure, which the store has logged, the brokers stay unfenced until their sessions expire.
        with suppress(OSError, LogOfflineError, CorruptLogError):
            for broker_id in sorted(self._registered):
                await self.fence_broker(broker_id)
        async with self._changing:
            await self.store.close()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with the whole image as one delta now, and with each later delta, in order.

        Returns a callable that ends the subscription. The listener must not call the controller. It returns None when
        it has applied the delta; an iterator that applies it in steps for a large later delta. The controller takes
        each step of all listeners before their next step, and all of them before it decides another change. An
        exception that a listener raises for a later delta is logged: the change is stored, and the other listeners get
        it.
        """
        applied = listener(MetadataDelta.between(ClusterImage(cluster_id=self.image.cluster_id), self.image))
        assert applied is None, "the first delta is applied immediately"
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def layers(self, broker_id: int, static: Mapping[str, str]) -> BrokerLayers:
        """Return the layers of a broker's configuration; `static` is its configuration from file and command line."""
        image = self.image
        return BrokerLayers(image.broker_configs(broker_id), image.broker_configs(None), static, self.context.release)

    # -- requests -----------------------------------------------------------------------------------------------------

    async def submit(self, request: Message, principal: Principal | None = None) -> Any:
        """Decide the request, store and replay its records; return the response of the request's API.

        `principal` is None for a request that a broker sends on its own behalf. A read-only request does not wait for
        changes in progress: it sees the image of the last stored change, as in Kafka (ControllerReadEvent).

        Raises NotControllerError if another controller has taken over, KeyError for an API that no command serves.
        """
        row = COMMANDS[request.API_KEY]
        run = command(request.API_KEY)

        def decide(image: ClusterImage) -> Decision:
            context = replace(self.context, principal=principal or ANONYMOUS, next_offset=self.store.next_offset)
            return run(image, request, context)

        if row.read_only:
            _, response = decide(self.image)
            return response
        response = await self._change(decide)
        if row.changes_configs:
            await self._change(lambda image: (brokers.elect_leaderless(image, self.context), None))
        if isinstance(request, BrokerRegistrationRequest) and response.error_code == ErrorCode.NONE:
            self._registered.add(request.broker_id)
        return response

    # -- the controller's own changes ---------------------------------------------------------------------------------

    async def delete_all_topics(self) -> DeleteTopicsResponse:
        """Delete every topic that exists when the controller decides this change."""
        from .commands.delete_topics import delete_topics, request_for_all

        return await self._change(lambda image: delete_topics(image, request_for_all(image), self.context))

    async def balance_leaders(self) -> None:
        """Elect preferred replicas where `leader.imbalance.per.broker.percentage` is exceeded."""
        from .commands.elect_leaders import balance

        await self._change(lambda image: (balance(image, self.context), None))

    async def forget_configs(self) -> None:
        """Remove every dynamic configuration except those of topics and those that a new cluster has."""
        from .commands.forget_configs import forget_configs

        await self._change(lambda image: (forget_configs(image, self.context), None))

    async def fence_broker(self, broker_id: int) -> None:
        """Fence a broker that has ended, so that other replicas become leaders."""
        await self._change(lambda image: (brokers.fence_broker(image, broker_id, self.context), None))

    async def append_from(self, read_records: Callable[[ClusterImage], Awaitable[Sequence[Message]]]) -> None:
        """Append the records that `read_records` returns; the controller decides no other change meanwhile."""

        async def change() -> None:
            async with self._changing:
                await self._commit(await read_records(self.image))

        await _run_to_completion(change())

    async def _change(self, decide: Callable[[ClusterImage], tuple[Sequence[Message], Response]]) -> Response:
        async def change() -> Response:
            async with self._changing:
                records, response = decide(self.image)
                await self._commit(records)
            return response

        return await _run_to_completion(change())

    async def _commit(self, records: Sequence[Message]) -> None:
        if records:
            offset, epoch = await self.store.append(records, self.image.levels)
            if len(records) > _LARGE_CHANGE:
                await asyncio.sleep(0)
            delta = replay(self.image, records, offset=offset, epoch=epoch)
            self.image = delta.image
            await self._publish(delta)
            self.store.applied(delta.image)

    async def _publish(self, delta: MetadataDelta) -> None:
        """Call every listener. An exception is logged, because the change is stored (Kafka's FaultHandler)."""
        applying: list[AsyncIterator[None]] = []
        for listener in tuple(self._listeners):
            try:
                steps = listener(delta)
            except Exception as error:
                self._report_failure(delta, error)
            else:
                if steps is not None:
                    applying.append(steps)
        while applying:
            for steps in tuple(applying):
                try:
                    await anext(steps)
                except StopAsyncIteration:
                    applying.remove(steps)
                except Exception as error:
                    applying.remove(steps)
                    self._report_failure(delta, error)

    def _report_failure(self, delta: MetadataDelta, error: Exception) -> None:
        self._reporter.error("listener failed to apply a metadata change", offset=delta.image.offset, exc_info=error)


async def _run_to_completion(work: Coroutine[None, None, Response]) -> Response:
    """Run the change to its end even if the caller is cancelled: stored records must be replayed."""
    task = asyncio.ensure_future(work)
    # A cancelled caller does not retrieve the exception; asyncio would then log that it was never retrieved.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
