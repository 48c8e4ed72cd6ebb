"""Markers to one other broker: WriteTxnMarkers requests, one after the other.

Owns the connection, and that everything that gathers while a request is under way goes with the next one. Leaves what
an answer means to `markers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek_broker.core.transaction import TopicPartition
from odradek_broker.network.peer import Peer, PeerError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.coordinators.markers import Sending

MARKERS_AT_ONCE = 1_000
ANSWER_GRACE_S = 5
"""The other side answers after `request.timeout.ms`, if it must: that is what the network may take beside."""

Settle = Callable[["Sending", dict[TopicPartition, ErrorCode]], None]


class MarkerSender:
    """A task lives while there is something to send."""

    def __init__(self, broker: Broker, destination: int, settle: Settle) -> None:
        self._broker = broker
        self._destination = destination
        self._settle = settle
        self._queue: list[tuple[Sending, list[TopicPartition]]] = []
        self._peer: Peer | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, sending: Sending, places: list[TopicPartition]) -> None:
        self._queue.append((sending, places))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._queue.clear()
        self._disconnect()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                taken, self._queue = self._queue[:MARKERS_AT_ONCE], self._queue[MARKERS_AT_ONCE:]
                taken = [each for each in taken if each[0].wanted]
                if taken:
                    await self._send(taken)
        finally:
            self._task = None

    async def _send(self, taken: list[tuple[Sending, list[TopicPartition]]]) -> None:
        try:
            errors = await self._ask([_marker(sending, places) for sending, places in taken])
        except Exception as error:
            self._disconnect()
            log = self._broker.log.bind(broker=self._destination)
            if isinstance(error, PeerError):
                log.debug("markers could not be sent; trying again", error=str(error))
            else:
                log.error("sending markers failed; trying again", exc_info=error)
            errors = {}
        for sending, places in taken:
            told = errors.get(sending.work.producer.id, {})
            self._settle(sending, {place: told.get(place, ErrorCode.NETWORK_EXCEPTION) for place in places})

    async def _ask(
        self, markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    ) -> dict[int, dict[TopicPartition, ErrorCode]]:
        """Errors by producer id and partition. Raises PeerError."""
        broker = self._broker
        timeout_s = broker.config.integer("request.timeout.ms") / 1000 + ANSWER_GRACE_S
        request, version = WriteTxnMarkersRequest(markers), broker.image.levels.write_txn_markers_version
        peer = self._peer
        if peer is None or peer.closed:
            peer = self._peer = await self._connect()
        response = await peer.ask(request, version, WriteTxnMarkersResponse, timeout_s)
        return {
            row.producer_id: {
                (topic.name, cell.partition_index): ErrorCode(cell.error_code)
                for topic in row.topics
                for cell in topic.partitions
            }
            for row in response.markers
        }

    async def _connect(self) -> Peer:
        broker = self._broker
        registration = broker.image.brokers.get(self._destination)
        endpoint = None if registration is None else registration.endpoint(broker.config.inter_broker_listener)
        if endpoint is None:
            raise PeerError(f"broker {self._destination} has no address")
        timeout_s = broker.config.integer("replica.socket.timeout.ms") / 1000
        name = f"broker-{broker.node_id}-txn-marker-sender"
        return await Peer.connect(endpoint.host, endpoint.port, name, timeout_s)

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


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
