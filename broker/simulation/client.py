"""A client's connections and metadata.

`Connection` is one connection, with pipelined requests; `Client` caches leaders and coordinators. Leaves the requests
to the workloads (`producers`, `readers`, `consumer_group`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from simulation.trace import Trace
from simulation.virtual_loop import START_MS

R = TypeVar("R", bound=Message)
PORT = 9092
TIMEOUT_S = 5.0
METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 3
TopicPartition = tuple[str, int]


def virtual_wall_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


class UnreachableError(ConnectionError):
    """The broker did not respond, and the connection is closed."""


class Connection(asyncio.Protocol):
    """One connection. Responses come in the order of the requests."""

    def __init__(self, host: str, broker: str) -> None:
        self.host = host
        self._broker = broker
        self._received = b""
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._sent = 0
        self.lost = False
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def connect(cls, host: str, broker: str) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                _, connection = await loop.create_connection(lambda: cls(host, broker), broker, PORT)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{broker}: {type(error).__name__}") from None
        return connection

    async def ask(self, request: Message, version: int, response_class: type[R], timeout_s: float = TIMEOUT_S) -> R:
        """Send a request and return its response. Raises UnreachableError; the request may have taken effect."""
        if self.lost or self._transport is None:
            raise UnreachableError(f"{self._broker}: closed")
        self._sent += 1
        correlation_id = self._sent
        request_frame = encode_request(request, version, correlation_id, self.host)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append(waiting)
        assert isinstance(self._transport, asyncio.WriteTransport)
        self._transport.write(len(request_frame).to_bytes(4) + request_frame)
        timeout = loop.call_later(timeout_s, self._give_up, waiting)
        try:
            frame = await waiting
        finally:
            timeout.cancel()
        correlated, response = decode_response(response_class, version, frame)
        assert correlated == correlation_id, "responses come in the order of the requests"
        return response

    def _give_up(self, waiting: asyncio.Future[bytes]) -> None:
        if not waiting.done():
            waiting.set_exception(UnreachableError(f"{self._broker}: no response"))
            self.close()

    def close(self) -> None:
        self.lost = True
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                return
            frame, self._received = self._received[4:end], self._received[end:]
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._fail()

    def _fail(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(UnreachableError(f"{self._broker}: connection lost"))


class Client:
    """The connections and cached metadata of one client; `brokers` are the bootstrap servers."""

    def __init__(
        self,
        *,
        host: str,
        brokers: list[str],
        chance: random.Random,
        trace: Trace,
        rack: str = "",
        wall_ms: Callable[[], int] = virtual_wall_ms,
    ) -> None:
        """`wall_ms` returns the timestamp for records."""
        self.host = host
        self.wall_ms = wall_ms
        self.rack = rack
        self.preferred: dict[TopicPartition, int] = {}
        """The preferred read replicas that leaders have named."""
        self.chance = chance
        self._brokers = brokers
        self._trace = trace
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The latest known leader epochs; metadata with an older epoch is ignored."""
        self._coordinators: dict[tuple[int, str], str] = {}
        self.topic_ids: dict[str, bytes] = {}

    def note(self, event: str) -> None:
        self._trace.add(self.host, event)

    async def connection(self, broker: str) -> Connection:
        """Return an open connection, or connect. Raises UnreachableError."""
        connection = self._connections.get(broker)
        if connection is None or connection.lost:
            connection = await Connection.connect(self.host, broker)
            other = self._connections.get(broker)
            if other is not None and not other.lost:
                connection.close()
                return other
            self._connections[broker] = connection
        return connection

    async def ask_any(self, request: Message, version: int, response_class: type[R]) -> R:
        """Ask the brokers in random order until one responds. Raises UnreachableError."""
        brokers = list(self._brokers)
        self.chance.shuffle(brokers)
        for broker in brokers:
            try:
                return await (await self.connection(broker)).ask(request, version, response_class)
            except UnreachableError:
                continue
        raise UnreachableError("no broker responds")

    async def ask_controller(self, request: Message, version: int, response_class: type[R]) -> R:
        """Ask the controller that Metadata names. Raises UnreachableError."""
        found = await self.ask_any(MetadataRequest([]), METADATA_VERSION, MetadataResponse)
        if found.controller_id < 0:
            raise UnreachableError("Metadata names no controller")
        return await (await self.connection(f"broker-{found.controller_id}")).ask(request, version, response_class)

    async def leader(self, topic: str, partition: int) -> Connection:
        """Return a connection to the cached leader. Raises UnreachableError."""
        if (topic, partition) not in self._leaders:
            await self._look_up(topic)
        found = self._leaders.get((topic, partition))
        if found is None:
            raise UnreachableError(f"{topic}-{partition} has no leader")
        connection = await self.connection(f"broker-{found[0]}")
        if self._leaders.get((topic, partition)) != found:
            # As a real client, never send a leader the epoch of its successor.
            raise UnreachableError(f"the leader of {topic}-{partition} has changed")
        return connection

    def leader_id(self, topic: str, partition: int) -> int | None:
        """Return the cached leader."""
        return self._leaders.get((topic, partition), (None, -1))[0]

    def leader_epoch(self, topic: str, partition: int) -> int:
        return self._epochs.get((topic, partition), -1)

    def update_leader_epoch(self, topic: str, partition: int, epoch: int) -> None:
        """Learn of a leader epoch from another member's committed offset."""
        if epoch > self.leader_epoch(topic, partition):
            self._epochs[topic, partition] = epoch
            self.forget_leader(topic, partition)

    def forget_leader(self, topic: str, partition: int) -> None:
        """Drop the cached leader, which did not respond or has resigned."""
        self._leaders.pop((topic, partition), None)
        self.preferred.pop((topic, partition), None)

    async def _look_up(self, topic: str) -> None:
        request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=topic)], False)
        response = await self.ask_any(request, METADATA_VERSION, MetadataResponse)
        for found in response.topics:
            if found.error_code or found.name is None:
                continue
            self.topic_ids[found.name] = found.topic_id
            for partition in found.partitions:
                key = (found.name, partition.partition_index)
                if partition.leader_id >= 0 and partition.leader_epoch >= self.leader_epoch(*key):
                    self._leaders[key] = (partition.leader_id, partition.leader_epoch)
                    self._epochs[key] = partition.leader_epoch

    async def coordinator(self, key: str, key_type: int = 0) -> Connection:
        """Return a connection to the coordinator of a group or transactional id (type 1). Raises UnreachableError."""
        broker = self._coordinators.get((key_type, key))
        if broker is None:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            response = await self.ask_any(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
            if response.error_code:
                raise UnreachableError(f"no coordinator: {ErrorCode(response.error_code).name}")
            broker = self._coordinators[key_type, key] = f"broker-{response.node_id}"
        try:
            return await self.connection(broker)
        except UnreachableError:
            self.forget_coordinator(key, key_type)
            raise

    def forget_coordinator(self, key: str, key_type: int = 0) -> None:
        self._coordinators.pop((key_type, key), None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def response_class_of(request: type[Message]) -> type[Message]:
    return APIS[request.API_KEY].response_class()
