"""Markers to one other broker, by WriteTxnMarkers requests.

Owns the connections and what is under way: what gathers in `marker_queue` while a request is goes with the next one,
and none waits for a request to partitions that are slow to replicate. That one is set aside, with its connection, and
so is every later one to partitions that are known to be slow; Kafka has one request in flight, and everybody waits for
it. A marker is never in two requests at a time: one that came late might end the transaction after its own. Leaves what
an answer means to `markers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.timers import TimerHandle
from odradek_broker.transactions.core.transaction import TopicPartition
from odradek_broker.transactions.marker_queue import MarkerQueue, Part, split
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.transactions.markers import Sending

PROMPT_MS = 100
"""Replication takes a few milliseconds: who has no answer after so long is not waited for by others."""
SET_ASIDE_MAX = 64
"""Requests, each with a connection. All of them name partitions that the others do not."""
IDLE_MAX = 2
CONNECT_S_MAX = 10
"""Or `replica.socket.timeout.ms`: a host that lost its power says nothing, and everybody waits for the connection."""
ANSWER_GRACE_S = 5
"""The other side answers after `request.timeout.ms`, if it must: that is what the network may take beside."""

Settle = Callable[["Sending", dict[TopicPartition, ErrorCode]], None]
"""Raises nothing."""
Errors = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id."""


class _Request:
    __slots__ = ("channel", "parts", "task", "timer")

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.task: asyncio.Task[None] | None = None
        self.channel: BrokerChannel | None = None
        """None until it is connected: nothing is sent before."""
        self.timer: TimerHandle | None = None

    @property
    def places(self) -> list[TopicPartition]:
        return [place for _, places in self.parts for place in places]


class MarkerSender:
    """A task lives as long as a request is under way."""

    def __init__(self, broker: Broker, destination: int, settle: Settle) -> None:
        self._broker = broker
        self._destination = destination
        self._settle = settle
        self._queue = MarkerQueue()
        self._prompt: _Request | None = None
        """The one that whatever gathers waits for."""
        self._set_aside: dict[_Request, list[TopicPartition]] = {}
        """Each with the places that no other one is to name."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[BrokerChannel] = []

    def add(self, sending: Sending, places: list[TopicPartition]) -> None:
        self._queue.add(sending, places)
        self._go_on()

    async def close(self) -> None:
        self._queue.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_idle()

    def take_back(self, led: Callable[[TopicPartition], bool], gone: bool) -> list[Part]:
        """Give back what has not been sent of markers for places that the other broker has not `led` any more.

        If it is `gone`, whatever was sent is as good as lost with its connection, and is settled so soon.
        """
        back = self._queue.take_back(led)
        for request in [*filter(None, [self._prompt]), *self._set_aside]:
            if request.channel is None:
                request.parts, unsent = split(request.parts, led)
                back += unsent
                if not request.parts and request.task is not None:
                    self._over(request)
                    request.task.cancel()
            elif gone:
                request.channel.close()
        if gone:
            self._close_idle()
        self._go_on()
        return back

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # -- which requests are under way ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._prompt is None and (parts := self._queue.take_prompt()):
            self._prompt = self._send(parts)
        while len(self._set_aside) < SET_ASIDE_MAX and (parts := self._queue.take_slow()):
            request = self._send(parts)
            self._set_aside[request] = request.places

    def _set_prompt_aside(self, request: _Request) -> None:
        """It takes too long: others go on without it."""
        if request is not self._prompt:
            return
        if len(self._set_aside) >= SET_ASIDE_MAX:
            self._watch(request)
            return
        self._prompt = None
        self._set_aside[request] = places = request.places
        self._queue.await_slow(places)
        self._go_on()

    def _watch(self, request: _Request) -> None:
        request.timer = self._broker.timers.call_later(PROMPT_MS, lambda: self._set_prompt_aside(request))

    def _over(self, request: _Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
        if request is self._prompt:
            self._prompt = None
        self._queue.answered(self._set_aside.pop(request, ()))

    # -- one request --------------------------------------------------------------------------------------------------

    def _send(self, parts: list[Part]) -> _Request:
        request = _Request(parts)
        request.task = task = asyncio.get_running_loop().create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    async def _run(self, request: _Request) -> None:
        try:
            errors = await self._outcome(request)
            for sending, places in request.parts:
                told = errors.get(sending.work.producer.id, {})
                outcomes = {place: told.get(place, ErrorCode.NETWORK_EXCEPTION) for place in places}
                self._learn(outcomes)
                self._settle(sending, outcomes)
        finally:
            self._over(request)
            self._go_on()

    def _learn(self, outcomes: dict[TopicPartition, ErrorCode]) -> None:
        for place, error in outcomes.items():
            if error == ErrorCode.REQUEST_TIMED_OUT:
                self._queue.is_slow(place)
            else:
                self._queue.is_prompt(place)

    async def _outcome(self, request: _Request) -> Errors:
        """Without those whose outcome is not known."""
        try:
            return await self._ask(request)
        except Exception as error:
            log = self._broker.log.bind(broker=self._destination)
            if isinstance(error, BrokerConnectionError):
                log.debug("markers could not be sent; trying again", error=str(error))
            else:
                log.error("sending markers failed; trying again", exc_info=error)
            return {}

    async def _ask(self, request: _Request) -> Errors:
        """Raises BrokerConnectionError."""
        broker = self._broker
        channel = self._idle.pop() if self._idle else self._channel()
        await channel.connect()
        request.channel = channel
        # Only now: while there was no connection some may have been taken back.
        markers = WriteTxnMarkersRequest([_marker(sending, places) for sending, places in request.parts])
        self._watch(request)
        version = broker.image.levels.write_txn_markers_version
        response = await channel.request(markers, version, WriteTxnMarkersResponse)
        if len(self._idle) < IDLE_MAX:
            self._idle.append(channel)
        else:
            channel.close()
        return {
            row.producer_id: {
                (topic.name, cell.partition_index): ErrorCode(cell.error_code)
                for topic in row.topics
                for cell in topic.partitions
            }
            for row in response.markers
        }

    def _channel(self) -> BrokerChannel:
        broker = self._broker
        config = broker.config
        return broker.channels.to(
            self._destination,
            "txn-marker-sender",
            timeout_s=config.integer("request.timeout.ms") / 1000 + ANSWER_GRACE_S,
            connect_timeout_s=min(config.integer("replica.socket.timeout.ms") / 1000, CONNECT_S_MAX),
        )


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
