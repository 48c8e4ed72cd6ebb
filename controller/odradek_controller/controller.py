"""The controller: checks requests against the image, stores the records that follow, replays them, tells its listeners.

Owns the one current image and the order of changes. Decisions are the commands', storage is the store's. All methods
run on one event loop; a change is decided, stored and replayed before the next one is decided.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from odradek_log.errors import CorruptLogError, LogOfflineError
from odradek_log.reporting import Reporter, StandardReporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message

from .commands import brokers
from .commands.create_topics import create_topics
from .commands.min_isr import explicit_min_isr
from .commands.settings import PlainTopicEntries, Settings
from .configs.effective import BrokerLayers
from .image import ClusterImage, MetadataDelta
from .levels import ApiRanges, Emulation, Features
from .replay import replay
from .store import MetadataStore

# Commands that no start needs are imported where they are called.
if TYPE_CHECKING:
    from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from odradek_wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from odradek_wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from odradek_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from odradek_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from odradek_wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from odradek_wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

Listener = Callable[[MetadataDelta], None]
Answer = TypeVar("Answer")


class Controller:
    """One per cluster. Open it, subscribe, and ask; `image` is always the latest."""

    refuses_expired = True
    """Brokers refuse a client's change with a `timeout_ms` of 0 or less, as Kafka's QuorumController does."""

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
        self._features = emulation.supported if features is None else features
        self.store = store
        self.emulation = emulation
        self.settings = Settings(node_id, rng.randbytes, rng.randrange, dict(static or {}), emulation.release)
        self.image = ClusterImage()
        self._reporter = reporter or StandardReporter()
        self._plain = PlainTopicEntries()
        self._listeners: list[Listener] = []
        self._registered: set[int] = set()
        self._changing = asyncio.Lock()

    @property
    def apis(self) -> ApiRanges | None:
        """What brokers advertise to clients; None: all that they serve."""
        return self.emulation.apis

    async def open(self) -> None:
        """Load what is stored and become the one writer."""
        self.image = await self.store.open()
        await self._change(lambda image: (explicit_min_isr(image, self.settings), None))

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
        return BrokerLayers(image.broker_configs(broker_id), image.broker_configs(None), static, self.settings.release)

    # -- topics -------------------------------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._change(lambda image: create_topics(image, request, self.settings, self._plain))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        from .commands.delete_topics import delete_topics

        return await self._change(lambda image: delete_topics(image, request, self.settings))

    async def delete_all_topics(self) -> DeleteTopicsResponse:
        """Those that there are when its turn has come, whatever is created until then."""
        from .commands.delete_topics import delete_topics, request_for_all

        return await self._change(lambda image: delete_topics(image, request_for_all(image), self.settings))

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from .commands.create_partitions import create_partitions

        return await self._change(lambda image: create_partitions(image, request, self.settings))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        from .commands.isr import alter_partition

        return await self._change(lambda image: alter_partition(image, request, self.settings))

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from .commands.reassign import alter_reassignments

        return await self._change(lambda image: alter_reassignments(image, request, self.settings))

    def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        from .commands.reassign import list_reassignments

        return list_reassignments(self.image, request)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        from .commands.elect_leaders import elect_leaders

        return await self._change(lambda image: elect_leaders(image, request, self.settings))

    async def balance_leaders(self) -> None:
        """Preferred replicas lead again where too many do not."""
        from .commands.elect_leaders import balance

        await self._change(lambda image: (balance(image, self.settings), None))

    # -- configurations and features ----------------------------------------------------------------------------------

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        from .commands.alter_configs import alter_configs

        answer = await self._change(lambda image: alter_configs(image, request, self.settings))
        await self._elect_leaderless()
        return answer

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        from .commands.alter_configs import incremental_alter_configs

        answer = await self._change(lambda image: incremental_alter_configs(image, request, self.settings))
        await self._elect_leaderless()
        return answer

    async def _elect_leaderless(self) -> None:
        """`unclean.leader.election.enable` may be another now."""
        await self._change(lambda image: (brokers.elect_leaderless(image, self.settings), None))

    async def forget_configs(self) -> None:
        """No dynamic configuration but those of topics, and what a new cluster has."""
        from .commands.forget_configs import forget_configs

        await self._change(lambda image: (forget_configs(image, self.settings), None))

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        from .commands.features import update_features

        return await self._change(lambda image: update_features(image, request, self.settings, self._features))

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """The broker is fenced until `unfence_broker`; its epoch is in the response."""
        response = await self._change(
            lambda image: brokers.register_broker(image, request, self.settings, self.store.next_offset)
        )
        if response.error_code == ErrorCode.NONE:
            self._registered.add(request.broker_id)
        return response

    async def unfence_broker(self, broker_id: int) -> None:
        """The broker is ready: it may lead, and clients see it."""
        await self._change(lambda image: (brokers.unfence_broker(image, broker_id, self.settings), None))

    async def fence_broker(self, broker_id: int) -> None:
        """The broker is gone: it leads no more."""
        await self._change(lambda image: (brokers.fence_broker(image, broker_id, self.settings), None))

    async def controlled_shutdown(self, broker_id: int) -> None:
        """The broker wants to go: what others can lead, they lead."""
        await self._change(lambda image: (brokers.controlled_shutdown(image, broker_id, self.settings), None))

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self._change(lambda image: brokers.unregister_broker(image, request, self.settings))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        from .commands.producer_ids import allocate_producer_ids

        return await self._change(lambda image: allocate_producer_ids(image, request))

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        from .commands.assign_directories import assign_replicas_to_dirs

        return await self._change(lambda image: assign_replicas_to_dirs(image, request, self.settings))

    # -- the store ----------------------------------------------------------------------------------------------------

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        from .commands.describe_quorum import describe_quorum

        return describe_quorum(self.image, request, self.store.quorum())

    async def reconcile(self, look: Callable[[ClusterImage], Awaitable[Sequence[Message]]]) -> None:
        """Make the change that follows from what others have stored; nothing else is changed while `look` reads it."""

        async def change() -> None:
            async with self._changing:
                await self._make(await look(self.image))

        await _to_its_end(change())

    async def _change(self, decide: Callable[[ClusterImage], tuple[Sequence[Message], Answer]]) -> Answer:
        async def change() -> Answer:
            async with self._changing:
                records, answer = decide(self.image)
                await self._make(records)
            return answer

        return await _to_its_end(change())

    async def _make(self, records: Sequence[Message]) -> None:
        if records:
            offset, epoch = await self.store.append(records, self.image.levels)
            delta = replay(self.image, records, offset=offset, epoch=epoch)
            self.image = delta.image
            self._tell(delta)
            self.store.applied(delta.image)

    def _tell(self, delta: MetadataDelta) -> None:
        """What is stored has happened, whether a listener can live with it or not (Kafka's FaultHandler)."""
        for listener in tuple(self._listeners):
            try:
                listener(delta)
            except Exception as error:
                self._reporter.error(
                    "a metadata change could not be applied in full", offset=delta.image.offset, exc_info=error
                )


async def _to_its_end(work: Coroutine[None, None, Answer]) -> Answer:
    """Who asked may go away while the records are on their way: once they are stored, they must be replayed."""
    task = asyncio.ensure_future(work)
    # Nobody is left then to hear that it failed.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
