"""Markers to one other broker, by WriteTxnMarkers requests.

Owns the connections, and which markers go together: what gathers while a request is under way goes with the next one,
and none waits for a request to partitions that are slow to replicate. That one is set aside, with its connection, and
so is every later one to partitions that are known to be slow; Kafka has one request in flight, and everybody waits for
it. A marker is never in two requests at a time: one that came late might end the transaction after its own. Leaves what
an answer means to `markers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek_broker.core.transaction import TopicPartition
from odradek_broker.network.peer import Peer, PeerError
from odradek_broker.timers import TimerHandle
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.coordinators.markers import Sending

MARKERS_AT_ONCE = 1_000
PROMPT_MS = 100
"""Replication takes a few milliseconds: who has no answer after so long is not waited for by others."""
SET_ASIDE_MAX = 64
"""Requests, each with a connection. All of them name partitions that the others do not."""
IDLE_MAX = 2
ANSWER_GRACE_S = 5
"""The other side answers after `request.timeout.ms`, if it must: that is what the network may take beside."""

Part = tuple["Sending", list[TopicPartition]]
"""A transaction, and partitions of it that this broker leads."""
Settle = Callable[["Sending", dict[TopicPartition, ErrorCode]], None]
Errors = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id."""


class _Request:
    __slots__ = ("parts", "task", "timer")

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.task: asyncio.Task[None] | None = None
        self.timer: TimerHandle | None = None


class MarkerSender:
    """A task lives as long as a request is under way."""

    def __init__(self, broker: Broker, destination: int, settle: Settle) -> None:
        self._broker = broker
        self._destination = destination
        self._settle = settle
        self._gathered: list[Part] = []
        self._prompt: _Request | None = None
        """The one that whatever gathers waits for."""
        self._set_aside: dict[_Request, None] = {}
        self._slow: set[TopicPartition] = set()
        """Named by a request that is or was set aside, or not replicated in time, until a marker gets through."""
        self._idle: list[Peer] = []

    def add(self, sending: Sending, places: list[TopicPartition]) -> None:
        self._gathered.append((sending, places))
        self._go_on()

    async def close(self) -> None:
        self._gathered.clear()
        tasks = [request.task for request in (self._prompt, *self._set_aside) if request is not None and request.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in self._idle:
            peer.close()

    # -- which markers go together ------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._prompt is None:
            parts = self._take(lambda place: place not in self._slow)
            if parts:
                self._prompt = self._send(parts)
        if self._slow and len(self._set_aside) < SET_ASIDE_MAX:
            awaited = {place for request in self._set_aside for _, places in request.parts for place in places}
            parts = self._take(lambda place: place in self._slow and place not in awaited)
            if parts:
                self._set_aside[self._send(parts)] = None

    def _take(self, fits: Callable[[TopicPartition], bool]) -> list[Part]:
        """What one request may carry of these partitions' markers leaves the queue, and so does what nobody wants."""
        taken: list[Part] = []
        left: list[Part] = []
        for part in self._gathered:
            sending, places = part
            if not sending.wanted:
                continue
            fitting = [place for place in places if fits(place)] if len(taken) < MARKERS_AT_ONCE else []
            if len(fitting) == len(places):
                taken.append(part)
            elif fitting:
                taken.append((sending, fitting))
                left.append((sending, [place for place in places if not fits(place)]))
            else:
                left.append(part)
        self._gathered = left
        return taken

    def _set_prompt_aside(self, request: _Request) -> None:
        """It takes too long: others go on without it."""
        if request is not self._prompt:
            return
        if len(self._set_aside) >= SET_ASIDE_MAX:
            self._watch(request)
            return
        self._prompt = None
        self._set_aside[request] = None
        self._slow.update(place for _, places in request.parts for place in places)
        self._go_on()

    def _watch(self, request: _Request) -> None:
        request.timer = self._broker.timers.call_later(PROMPT_MS, lambda: self._set_prompt_aside(request))

    # -- one request --------------------------------------------------------------------------------------------------

    def _send(self, parts: list[Part]) -> _Request:
        request = _Request(parts)
        request.task = asyncio.get_running_loop().create_task(self._run(request))
        return request

    async def _run(self, request: _Request) -> None:
        try:
            errors = await self._outcome(request)
        finally:
            if request.timer is not None:
                request.timer.cancel()
            self._set_aside.pop(request, None)
            if request is self._prompt:
                self._prompt = None
        try:
            for sending, places in request.parts:
                told = errors.get(sending.work.producer.id, {})
                outcomes = {place: told.get(place, ErrorCode.NETWORK_EXCEPTION) for place in places}
                self._learn(outcomes)
                self._settle(sending, outcomes)
        finally:
            self._go_on()

    def _learn(self, outcomes: dict[TopicPartition, ErrorCode]) -> None:
        for place, error in outcomes.items():
            if error == ErrorCode.REQUEST_TIMED_OUT:
                self._slow.add(place)
            else:
                self._slow.discard(place)

    async def _outcome(self, request: _Request) -> Errors:
        """Without those whose outcome is not known."""
        try:
            return await self._ask(request)
        except Exception as error:
            log = self._broker.log.bind(broker=self._destination)
            if isinstance(error, PeerError):
                log.debug("markers could not be sent; trying again", error=str(error))
            else:
                log.error("sending markers failed; trying again", exc_info=error)
            return {}

    async def _ask(self, request: _Request) -> Errors:
        """Raises PeerError."""
        broker = self._broker
        timeout_s = broker.config.integer("request.timeout.ms") / 1000 + ANSWER_GRACE_S
        markers = WriteTxnMarkersRequest([_marker(sending, places) for sending, places in request.parts])
        peer = await self._connection()
        self._watch(request)
        try:
            version = broker.image.levels.write_txn_markers_version
            response = await peer.ask(markers, version, WriteTxnMarkersResponse, timeout_s)
        except BaseException:
            peer.close()
            raise
        if len(self._idle) < IDLE_MAX:
            self._idle.append(peer)
        else:
            peer.close()
        return {
            row.producer_id: {
                (topic.name, cell.partition_index): ErrorCode(cell.error_code)
                for topic in row.topics
                for cell in topic.partitions
            }
            for row in response.markers
        }

    async def _connection(self) -> Peer:
        while self._idle:
            peer = self._idle.pop()
            if not peer.closed:
                return peer
        broker = self._broker
        registration = broker.image.brokers.get(self._destination)
        endpoint = None if registration is None else registration.endpoint(broker.config.inter_broker_listener)
        if endpoint is None:
            raise PeerError(f"broker {self._destination} has no address")
        timeout_s = broker.config.integer("replica.socket.timeout.ms") / 1000
        name = f"broker-{broker.node_id}-txn-marker-sender"
        return await Peer.connect(endpoint.host, endpoint.port, name, timeout_s)


def _marker(sending: Sending, places: list[TopicPartition]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    work = sending.work
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        work.producer.id,
        work.producer.epoch,
        work.commit,
        [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
        work.coordinator_epoch,
        work.transaction_version,
    )
