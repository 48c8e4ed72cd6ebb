"""The controller: checks requests against the image, stores the records that follow, replays them, tells its listeners.

Owns the one current image and the order of changes. Decisions are the commands', storage is the store's. All methods
run on one event loop; a change is decided, stored and replayed before the next one is decided.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
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
from .commands.dispatch import COMMANDS, command
from .commands.min_isr import explicit_min_isr
from .configs.effective import BrokerLayers
from .image import ClusterImage, MetadataDelta
from .levels import Emulation, Features
from .principal import ANONYMOUS, Principal
from .replay import replay
from .store import MetadataStore

if TYPE_CHECKING:
    from odradek_wire.messages.delete_topics import DeleteTopicsResponse

Listener = Callable[[MetadataDelta], None]
Response = TypeVar("Response")


class Controller:
    """One per cluster. Open it, subscribe, and ask; `image` is always the latest."""

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
        """`features`: the levels that UpdateFeatures may set, by default all that the release supports."""
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
        """Load what is stored and become the one writer."""
        self.image = await self.store.open()
        await self._change(lambda image: (explicit_min_isr(image, self.context), None))

    async def close(self) -> None:
        """Fence the brokers that registered here, so that whoever opens the store next need not wait for them.

        Listeners are told nothing of it: they are going, too.
        """
        self._listeners.clear()
        # A store whose disk failed has said so when it happened; whoever opens it next waits for the brokers' sessions.
        with suppress(OSError, LogOfflineError, CorruptLogError):
            for broker_id in sorted(self._registered):
                await self.fence_broker(broker_id)
        async with self._changing:
            await self.store.close()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """The listener gets the whole image as one delta now, and each change after it; returns how to unsubscribe.

        It is called synchronously, in the order of changes, and must not call the controller back. What it raises later
        than now is reported, and hinders nobody: the change is made, and the other listeners are told of it.
        """
        listener(MetadataDelta.between(ClusterImage(cluster_id=self.image.cluster_id), self.image))
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def layers(self, broker_id: int, static: Mapping[str, str]) -> BrokerLayers:
        """What a broker's configuration is made of now, given its own static one."""
        image = self.image
        return BrokerLayers(image.broker_configs(broker_id), image.broker_configs(None), static, self.context.release)

    # -- requests -----------------------------------------------------------------------------------------------------

    async def submit(self, request: Message, principal: Principal | None = None) -> Any:
        """Decide the request, store and replay its records; return the response of the request's API.

        `principal` is None for a request that a broker sends on its own behalf.

        Raises NotControllerError if another controller has taken over, KeyError for an API that no command serves.
        """
        decide = command(request.API_KEY)
        response = await self._change(
            lambda image: decide(
                image,
                request,
                replace(self.context, principal=principal or ANONYMOUS, next_offset=self.store.next_offset),
            )
        )
        if COMMANDS[request.API_KEY].changes_configs:
            await self._change(lambda image: (brokers.elect_leaderless(image, self.context), None))
        if isinstance(request, BrokerRegistrationRequest) and response.error_code == ErrorCode.NONE:
            self._registered.add(request.broker_id)
        return response

    # -- the controller's own changes ---------------------------------------------------------------------------------

    async def delete_all_topics(self) -> DeleteTopicsResponse:
        """Delete the topics that exist when this change is decided."""
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

    async def reconcile(self, read: Callable[[ClusterImage], Awaitable[Sequence[Message]]]) -> None:
        """Make the change that follows from what others have stored; nothing else is changed while `look` reads it."""

        async def change() -> None:
            async with self._changing:
                await self._commit(await read(self.image))

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
            delta = replay(self.image, records, offset=offset, epoch=epoch)
            self.image = delta.image
            self._publish(delta)
            self.store.applied(delta.image)

    def _publish(self, delta: MetadataDelta) -> None:
        """What is stored has happened, whether a listener can live with it or not (Kafka's FaultHandler)."""
        for listener in tuple(self._listeners):
            try:
                listener(delta)
            except Exception as error:
                self._reporter.error(
                    "a metadata change could not be applied in full", offset=delta.image.offset, exc_info=error
                )


async def _run_to_completion(work: Coroutine[None, None, Response]) -> Response:
    """Who asked may go away while the records are on their way: once they are stored, they must be replayed."""
    task = asyncio.ensure_future(work)
    # Nobody is left then to hear that it failed.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
