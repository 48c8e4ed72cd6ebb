"""The controller's requests to the brokers: a queue and a connection for each broker, its own broker included.

Owns order and retries: the controller sends a broker one request at a time, and retries until the broker responds or
its registration ends. Leaves the content of requests to `broker_requests`. Like Kafka's controller, it sends no
ApiVersions request first. Source: ControllerChannelManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.zookeeper.broker_requests import (
    INCREMENTAL,
    VERSIONS,
    ChangeRequests,
    assigned_replicas,
    deletion_requests,
    full_requests,
    live_brokers,
    restarted_brokers,
)
from odradek_broker.zookeeper.control_request_adapter import FULL
from odradek_controller.image import LOST_DIRECTORY, BrokerRegistration, ClusterImage, MetadataDelta, TopicImage
from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper.topic_deletion import TopicDeletionManager
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.leader_and_isr import LeaderAndIsrResponse
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek_wire.uuid import Uuid

if TYPE_CHECKING:
    from odradek_broker.logger import Logger

_QUEUE_MAX = 1000
"""The maximum number of requests in a broker's queue. Requests with the full state replace a longer queue."""
BACKOFF_MS = (10, 20, 50, 100)
"""The delays before the retries of a request, the last one for all later retries."""


class BrokerResponseHandler(Protocol):
    """The part of `ZooKeeperController` that gets the brokers' responses."""

    @property
    def deletions(self) -> TopicDeletionManager: ...

    @property
    def unreadable(self) -> Collection[str]:
        """The topics whose znodes cannot be read. The image does not have them."""
        ...

    def replicas_deleted(
        self, broker: BrokerRegistration, deleted: Collection[tuple[str, int]], failed: Collection[tuple[str, int]]
    ) -> None:
        """Record the replicas that the broker has deleted, and those that it failed to delete."""
        ...

    async def replicas_reported(
        self, broker: BrokerRegistration, lost: Collection[tuple[Uuid, int]], served: Collection[tuple[Uuid, int]]
    ) -> None:
        """Record the replicas that the broker no longer serves, or serves again. Raises NotControllerError."""
        ...


Channel = Callable[[BrokerRegistration], BrokerChannel]
Sleep = Callable[[int], Awaitable[None]]


class ControllerChannelManager:
    """The queues of one term. Subscribe `apply` to the controller, and call `close` when the term ends."""

    def __init__(
        self,
        controller_id: int,
        handler: BrokerResponseHandler,
        channel: Channel,
        sleep: Sleep,
        log: Logger,
    ) -> None:
        """`channel` returns a channel to a broker, with `BACKOFF_MS`; `sleep` takes milliseconds."""
        self._controller_id = controller_id
        self._handler = handler
        self.channel = channel
        self.sleep = sleep
        self._log = log
        self._queues: dict[int, _RequestQueue] = {}
        self._closed = False
        self.image = ClusterImage()
        handler.deletions.on_deletion_started = self._request_deletions

    def apply(self, delta: MetadataDelta) -> None:
        """Queue the requests for a change, unless the term has ended: then the next controller sends them."""
        if self._closed:
            return
        self.image = delta.image
        live = live_brokers(delta.image)
        for broker_id in [key for key in self._queues if key not in live]:
            self._queues.pop(broker_id).close()
        changes = ChangeRequests(delta, self._controller_id, self._handler.deletions)
        restarted = set(restarted_brokers(delta))
        for broker_id, registration in live.items():
            queue = self._queues.get(broker_id)
            if queue is None or broker_id in restarted:
                if queue is not None:
                    queue.close()
                queue = self._queues[broker_id] = _RequestQueue(self, registration)
                queue.add(self.full_requests(broker_id))
            elif queue.needs_full_requests and not self._handler.unreadable:
                queue.add(self.full_requests(broker_id))
            else:
                queue.add(changes.to_broker(broker_id))

    def _request_deletions(self, topics: Sequence[TopicImage]) -> None:
        for broker_id, queue in self._queues.items():
            queue.add(deletion_requests(self.image, broker_id, self._controller_id, topics))

    def request_lost_replicas(self, broker_ids: Iterable[int]) -> None:
        """Send these brokers a LeaderAndIsr request for all their replicas. The responses name the lost ones.

        A broker in controlled shutdown gets none, because it would restart the replicas that it has stopped."""
        for broker_id in broker_ids:
            queue = self._queues.get(broker_id)
            if queue is not None and not self.image.brokers[broker_id].in_controlled_shutdown:
                image = self._handler.deletions.without_deleted(self.image)
                queue.add(assigned_replicas(image, broker_id, self._controller_id))

    async def close(self) -> None:
        """Send nothing more; return when all tasks have ended."""
        self._closed = True
        queues, self._queues = list(self._queues.values()), {}
        for queue in queues:
            queue.close()
        if queues:
            await asyncio.wait([queue.task for queue in queues])

    # -- called by the queues -----------------------------------------------------------------------------------------

    async def send(self, channel: BrokerChannel, request: Message) -> Message:
        """Return the broker's response. Raises BrokerConnectionError."""
        response: type[Message] = APIS[request.API_KEY].response_class()
        return await channel.request(request, VERSIONS[type(request)], response)

    def full_requests(self, broker_id: int) -> list[Message]:
        """Return the requests with the full state. They are incremental while a topic cannot be read, because its
        replicas are not strays."""
        unreadable = self._handler.unreadable
        if unreadable:
            self._log.error(
                "topics cannot be read, stray replicas are not marked",
                to=broker_id,
                topics=sorted(unreadable),
            )
        self._queues[broker_id].needs_full_requests = bool(unreadable)
        kind = INCREMENTAL if unreadable else FULL
        return full_requests(self.image, broker_id, self._controller_id, self._handler.deletions, kind)

    async def handle_response(self, broker: BrokerRegistration, request: Message, response: Message) -> None:
        """Handle a response. A refused request is not sent again, because a newer controller or registration replaces
        it."""
        error = ErrorCode(response.error_code)  # type: ignore[attr-defined]  # all three responses have it
        if error:
            self._log.warning(
                "broker refused a request of the controller",
                to=broker.id,
                request=type(request).__name__,
                error=error.name,
            )
        elif isinstance(response, StopReplicaResponse):
            self._record_deletions(broker, request, response)
        elif isinstance(response, LeaderAndIsrResponse):
            errors = _error_counts(response)
            if errors:
                self._log.error("broker refused partitions", to=broker.id, errors=errors)
            lost, served = self._changed_replicas(broker.id, response)
            if lost or served:
                await self._handler.replicas_reported(broker, lost, served)

    def _record_deletions(self, broker: BrokerRegistration, request: Message, response: StopReplicaResponse) -> None:
        assert isinstance(request, StopReplicaRequest)
        requested = {
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.delete_partition
        }
        failed = {(each.topic_name, each.partition_index) for each in response.partition_errors if each.error_code}
        self._handler.replicas_deleted(broker, requested - failed, requested & failed)

    def _changed_replicas(
        self, broker_id: int, response: LeaderAndIsrResponse
    ) -> tuple[set[tuple[Uuid, int]], set[tuple[Uuid, int]]]:
        """Return the replicas that the broker no longer serves, and those that it serves again. A replica with another
        error is in neither set."""
        lost, served = set(), set()
        for topic in response.topics:
            for each in topic.partition_errors:
                key = Uuid(topic.topic_id), each.partition_index
                partition = self.image.partition(*key)
                was_lost = partition is not None and partition.directory(broker_id) == LOST_DIRECTORY
                if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not was_lost:
                    lost.add(key)
                elif each.error_code == ErrorCode.NONE and was_lost:
                    served.add(key)
        return lost, served

    def report_failure(self, broker_id: int, error: Exception) -> None:
        self._log.error("request to a broker failed", to=broker_id, exc_info=error)

    def report_unreachable(self, broker_id: int, error: Exception) -> None:
        self._log.warning("broker unreachable, retrying", to=broker_id, error=str(error))


class _RequestQueue:
    """The requests that wait for one broker in one registration, and the task that sends them."""

    def __init__(self, owner: ControllerChannelManager, registration: BrokerRegistration) -> None:
        self._owner = owner
        self._registration = registration
        self._waiting: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._channel = owner.channel(registration)
        self.needs_full_requests = False
        """Whether the broker still needs requests of the type FULL, with which it marks stray replicas."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def add(self, requests: list[Message]) -> None:
        self._waiting.extend(requests)
        if len(self._waiting) > _QUEUE_MAX:
            # StopReplica requests stay: after the full requests the replicas to delete would be strays.
            stops = [request for request in self._waiting if isinstance(request, StopReplicaRequest)]
            self._waiting = deque([*stops, *self._owner.full_requests(self._registration.id)])
        self._wake.set()

    def close(self) -> None:
        self._waiting.clear()
        self.task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    request = self._waiting.popleft()
                    try:
                        response = await self._until_response(request)
                        await self._owner.handle_response(self._registration, request, response)
                    except NotControllerError:
                        return
                    except Exception as error:
                        self._owner.report_failure(self._registration.id, error)
        finally:
            self._channel.close()

    async def _until_response(self, request: Message) -> Message:
        channel = self._channel
        while True:
            try:
                return await self._owner.send(channel, request)
            except BrokerConnectionError as error:
                if channel.failures == len(BACKOFF_MS):
                    self._owner.report_unreachable(self._registration.id, error)
                await self._owner.sleep(channel.backoff_ms)


def _error_counts(response: LeaderAndIsrResponse) -> dict[str, int]:
    """Return the number of partitions with each error; an outdated leader epoch is not an error here."""
    counts = Counter(each.error_code for topic in response.topics for each in topic.partition_errors)
    return {
        ErrorCode(code).name: count
        for code, count in sorted(counts.items())
        if code not in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
    }
