"""Transaction markers for one other broker: a queue, and the WriteTxnMarkers requests in flight.

Owns which markers share a request, and which partitions are slow. Leaves the choice of the broker, and retries, to
`transaction_marker_channel_manager`, and connections to `inter_broker.channel`.

While a marker waits for slow replication, markers of other transactions must not wait for it. Kafka has one request in
flight to each broker, and all markers wait for its response. Here a request that takes longer than `SLOW_MS` is set
aside with its connection, and its partitions are slow: markers for a slow partition wait for the request that names it,
all other markers are sent. A marker is never in two requests at a time, because the later one could end the producer's
next transaction.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Protocol

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError, error_code
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.logger import Logger
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction_metadata import TopicPartition
from odradek_broker.transactions.core.transaction_step import TransactionMarkers
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

SLOW_MS = 100
"""Replication takes a few milliseconds: a request that takes longer than this is set aside."""
TRANSACTIONS_MAX = 1_000
"""The number of transactions in one request."""
REQUESTS_SET_ASIDE_MAX = 64
"""The number of requests to one broker that may be set aside, each with a connection of its own. No two of them name
the same partition."""
IDLE_CHANNELS_MAX = 2


class MarkerCoordinator(Protocol):
    """The coordinator that decided the transaction."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is still the coordinator; otherwise another broker sends the markers."""

    def markers_written(self, markers: TransactionMarkers, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions have their marker, or need none."""


class PendingCompletion:
    """A decided transaction until all its partitions have their marker (Kafka's PendingCompleteTxn)."""

    __slots__ = ("abandoned", "coordinator", "error_logged", "exception_logged", "markers")

    def __init__(self, coordinator: MarkerCoordinator, markers: TransactionMarkers) -> None:
        self.coordinator = coordinator
        self.markers = markers
        self.abandoned = False
        """A later coordinator of the transactional id writes the markers."""
        self.exception_logged = False
        """An exception was logged."""
        self.error_logged = False
        """A leader's unexpected error was logged."""

    @property
    def is_active(self) -> bool:
        """Whether this broker still has to complete the transaction."""
        return not self.abandoned and self.coordinator.is_active


Entry = tuple[PendingCompletion, list[TopicPartition]]
"""A transaction, and one or more of its partitions."""
Errors = dict[TopicPartition, ErrorCode]
HandleErrors = Callable[[PendingCompletion, Errors], None]
"""Receives the errors that a leader returned for a transaction's partitions. Never raises."""


class _Request:
    """One WriteTxnMarkers request."""

    __slots__ = ("channel", "entries", "task", "timer")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.task: asyncio.Task[None] | None = None
        self.channel: BrokerChannel | None = None
        """None until it is connected, which is before the request is sent."""
        self.timer: TimerHandle | None = None

    @property
    def partitions(self) -> list[TopicPartition]:
        return [partition for _, partitions in self.entries for partition in partitions]


class MarkerChannel:
    """Markers for one other broker: the queue, the current request, and the requests that are set aside. Each request
    has a task of its own."""

    def __init__(
        self,
        *,
        new_channel: Callable[[], BrokerChannel],
        version: Callable[[], int],
        handle_errors: HandleErrors,
        timers: Timers,
        log: Logger,
    ) -> None:
        self._new_channel = new_channel
        self._version = version
        self._handle_errors = handle_errors
        self._timers = timers
        self._log = log
        self._queue = MarkerQueue()
        self._current: _Request | None = None
        self._requests_set_aside: dict[_Request, list[TopicPartition]] = {}
        """Requests that are set aside, with their slow partitions."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[BrokerChannel] = []

    def add(self, pending: PendingCompletion, partitions: list[TopicPartition]) -> None:
        self._queue.add(pending, partitions)
        self._send_next()

    async def close(self) -> None:
        self._queue.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_idle()

    def remove_moved(self, is_led: Callable[[TopicPartition], bool], is_gone: bool) -> list[Entry]:
        """Remove and return the markers that are not sent yet, for partitions that the broker no longer leads.

        If the broker is gone, close the connections too, so that requests in flight fail immediately."""
        removed = self._queue.remove_moved(is_led)
        for request in [*filter(None, [self._current]), *self._requests_set_aside]:
            if request.channel is None:
                request.entries, moved = _split(request.entries, is_led)
                removed += moved
                if not request.entries and request.task is not None:
                    self._finish(request)
                    request.task.cancel()
            elif is_gone:
                request.channel.close()
        if is_gone:
            self._close_idle()
        self._send_next()
        return removed

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # -- the requests in flight ---------------------------------------------------------------------------------------

    def _send_next(self) -> None:
        if self._current is None and (entries := self._queue.take()):
            self._current = self._send(entries)
        while len(self._requests_set_aside) < REQUESTS_SET_ASIDE_MAX and (entries := self._queue.take_slow()):
            request = self._send(entries)
            self._requests_set_aside[request] = request.partitions

    def _start_timer(self, request: _Request) -> None:
        request.timer = self._timers.call_later(SLOW_MS, lambda: self._set_aside_if_current(request))

    def _set_aside_if_current(self, request: _Request) -> None:
        """If the request is still the current one, it is slow: send other markers without waiting for it."""
        if request is not self._current:
            return
        if len(self._requests_set_aside) >= REQUESTS_SET_ASIDE_MAX:
            self._start_timer(request)
            return
        self._current = None
        self._requests_set_aside[request] = partitions = request.partitions
        self._queue.add_slow_request(partitions)
        self._send_next()

    def _finish(self, request: _Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
        if request is self._current:
            self._current = None
        self._queue.remove_slow_request(self._requests_set_aside.pop(request, ()))

    # -- one request --------------------------------------------------------------------------------------------------

    def _send(self, entries: list[Entry]) -> _Request:
        request = _Request(entries)
        request.task = task = asyncio.get_running_loop().create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    async def _run(self, request: _Request) -> None:
        try:
            received = await self._request(request)
            for pending, partitions in request.entries:
                errors = received.get(pending.markers.producer.id, {})
                found = {partition: errors.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in partitions}
                self._update_slow_partitions(found)
                self._handle_errors(pending, found)
        finally:
            self._finish(request)
            self._send_next()

    def _update_slow_partitions(self, errors: Errors) -> None:
        for partition, error in errors.items():
            if error == ErrorCode.REQUEST_TIMED_OUT:
                self._queue.mark_slow(partition)
            else:
                self._queue.unmark_slow(partition)

    async def _request(self, request: _Request) -> dict[int, Errors]:
        """Return the errors by producer id, without the partitions whose outcome is unknown."""
        try:
            return await self._send_request(request)
        except BrokerConnectionError as error:
            self._log.debug("markers could not be sent; retrying", error=str(error))
        except Exception as error:
            self._log.error("sending markers failed; retrying", exc_info=error)
        return {}

    async def _send_request(self, request: _Request) -> dict[int, Errors]:
        channel = self._idle.pop() if self._idle else self._new_channel()
        await channel.connect()
        request.channel = channel
        # The message is built after connecting, because `remove_moved` may take entries from the request until then.
        message = WriteTxnMarkersRequest([_marker(pending, partitions) for pending, partitions in request.entries])
        self._start_timer(request)
        response = await channel.request(message, self._version(), WriteTxnMarkersResponse)
        if len(self._idle) < IDLE_CHANNELS_MAX:
            self._idle.append(channel)
        else:
            channel.close()
        return {
            row.producer_id: {
                (topic.name, partition.partition_index): error_code(partition.error_code)
                for topic in row.topics
                for partition in topic.partitions
            }
            for row in response.markers
        }


class MarkerQueue:
    """The markers that wait to be sent to one broker: those for slow partitions by partition, the others in order.

    Adding a marker takes the same time however many wait. Entries that are no longer active are dropped when their turn
    comes."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        """May contain partitions that have become slow since: they are moved when their turn comes."""
        self._slow: dict[TopicPartition, deque[PendingCompletion]] = {}
        """All slow partitions, with the transactions that wait for each of them."""
        self._in_flight: set[TopicPartition] = set()
        """The slow partitions that a request names."""
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()
        """The slow partitions that transactions wait for, and that no request names."""

    def add(self, pending: PendingCompletion, partitions: list[TopicPartition]) -> None:
        not_slow = self._move_slow(pending, partitions)
        if not_slow:
            self._entries.append((pending, not_slow))

    def clear(self) -> None:
        self._entries.clear()
        self._slow.clear()
        self._ready.clear()

    def take(self) -> list[Entry]:
        """Remove and return the entries of the next request, which names no slow partition."""
        taken: list[Entry] = []
        while self._entries and len(taken) < TRANSACTIONS_MAX:
            pending, partitions = self._entries.popleft()
            not_slow = self._move_slow(pending, partitions) if pending.is_active else []
            if not_slow:
                taken.append((pending, not_slow))
        return taken

    def take_slow(self) -> list[Entry]:
        """Remove and return the entries of a request to slow partitions that no other request names. When it has
        completed, the caller calls `remove_slow_request`."""
        taken: dict[PendingCompletion, list[TopicPartition]] = {}
        count = 0
        while self._ready and count < TRANSACTIONS_MAX:
            partition, _ = self._ready.popitem(last=False)
            waiting = self._slow[partition]
            while waiting and count < TRANSACTIONS_MAX:
                pending = waiting.popleft()
                if pending.is_active:
                    taken.setdefault(pending, []).append(partition)
                    self._in_flight.add(partition)
                    count += 1
        return list(taken.items())

    def _move_slow(self, pending: PendingCompletion, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Let the transaction wait for the slow ones of these partitions; return the others."""
        if not self._slow:
            return partitions
        not_slow = []
        for partition in partitions:
            waiting = self._slow.get(partition)
            if waiting is None:
                not_slow.append(partition)
            else:
                waiting.append(pending)
                if partition not in self._in_flight:
                    self._ready[partition] = None
        return not_slow

    def mark_slow(self, partition: TopicPartition) -> None:
        self._slow.setdefault(partition, deque())

    def unmark_slow(self, partition: TopicPartition) -> None:
        waiting = self._slow.pop(partition, None)
        self._ready.pop(partition, None)
        if waiting:
            self._entries.extend((pending, [partition]) for pending in waiting)

    def add_slow_request(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark these partitions as slow, and as named by a request in flight."""
        for partition in partitions:
            self._in_flight.add(partition)
            self.mark_slow(partition)

    def remove_slow_request(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the next request name these partitions, of which some may no longer be slow."""
        for partition in partitions:
            self._in_flight.discard(partition)
            if self._slow.get(partition):
                self._ready[partition] = None

    def remove_moved(self, is_led: Callable[[TopicPartition], bool]) -> list[Entry]:
        """Remove and return the entries for partitions that the broker no longer leads."""
        staying, removed = _split(self._entries, is_led)
        self._entries = deque(staying)
        for partition in [partition for partition in self._slow if not is_led(partition)]:
            removed += [(pending, [partition]) for pending in self._slow.pop(partition)]
            self._ready.pop(partition, None)
        return removed


def _split(entries: Iterable[Entry], is_led: Callable[[TopicPartition], bool]) -> tuple[list[Entry], list[Entry]]:
    """The entries for partitions that the broker leads, and the others."""
    staying: list[Entry] = []
    moved: list[Entry] = []
    for pending, partitions in entries:
        led = [partition for partition in partitions if is_led(partition)]
        if led:
            staying.append((pending, led))
        if len(led) < len(partitions):
            moved.append((pending, [partition for partition in partitions if not is_led(partition)]))
    return staying, moved


def _marker(pending: PendingCompletion, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    markers = pending.markers
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        markers.producer.id,
        markers.producer.epoch,
        markers.commit,
        [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
        markers.coordinator_epoch,
        markers.transaction_version,
    )
