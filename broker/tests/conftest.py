"""Fixtures for tests of the broker: nodes on port 0 in a temporary directory, and a client for single requests."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import structlog

from odradek_broker.clock import Clock
from odradek_log.disk import Disk
from odradek_wire.apis import APIS
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.uuid import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from broker.tests.alone import Node

R = TypeVar("R", bound=Message)
StartNode = Callable[..., Awaitable["Node"]]
Connect = Callable[..., Awaitable["Client"]]
TIMEOUT_S = 10


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on asyncio's own loop; those marked `asyncio(loop_factories=["asyncio", "uvloop"])` on both, or skip
    the one that is not installed."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    marker = item.get_closest_marker("asyncio")
    if marker is not None and "loop_factories" in marker.kwargs:
        try:
            import uvloop
        except ImportError:
            return factories
        factories["uvloop"] = uvloop.new_event_loop
    return factories


class Client:
    """One connection. Encodes requests and decodes responses by version; `send` and `receive` allow pipelining."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    def send(self, request: Message, version: int, client_id: str | None = "test") -> int:
        """Write a request; return its correlation id."""
        self._correlation_id += 1
        self.send_frame(encode_request(request, version, self._correlation_id, client_id))
        return self._correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)

    async def receive(self, response: type[R], version: int) -> tuple[int, R]:
        """Return (correlation id, response) of the next response."""
        return decode_response(response, version, await self.receive_frame())

    async def ask(self, request: Message, version: int, client_id: str | None = "test") -> Any:
        """Send a request and return its response."""
        correlation_id = self.send(request, version, client_id)
        answered, response = await self.receive(APIS[request.API_KEY].response_class(), version)
        assert answered == correlation_id
        return response

    async def is_closed_by_broker(self) -> bool:
        """Wait for the end of the connection; return False if bytes arrive instead."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Uuid:
        """Create a topic; settings have underscores for dots."""
        response = await self.ask(
            CreateTopicsRequest(
                [
                    CreateTopicsRequest.CreatableTopic(
                        name,
                        partitions,
                        1,
                        [],
                        [
                            CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value)
                            for key, value in configs.items()
                        ],
                    )
                ]
            ),
            7,
        )
        assert response.topics[0].error_code == 0, response
        return Uuid(response.topics[0].topic_id)

    async def produce(
        self,
        topic: str,
        records: bytes,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        topic_id: Uuid = ZERO_UUID,
        transactional_id: str | None = None,
    ) -> ProduceResponse.PartitionProduceResponse:
        request = produce_request(topic, records, partition, acks, topic_id, transactional_id)
        response = await self.ask(request, version)
        answer: ProduceResponse.PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def close(self) -> None:
        self.writer.close()


def produce_request(
    topic: str,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    topic_id: Uuid = ZERO_UUID,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id,
        acks,
        5000,
        [ProduceRequest.TopicProduceData(topic, topic_id, [ProduceRequest.PartitionProduceData(partition, records)])],
    )


def batch(*values: bytes, timestamp: int | None = None) -> bytes:
    """Return a batch of records without keys, with the present time."""
    builder = BatchBuilder()
    now_ms = int(time.time() * 1000) if timestamp is None else timestamp
    for value in values:
        builder.append(now_ms, None, value)
    return bytes(builder.build())


@pytest.fixture
async def start_node(tmp_path: Path) -> AsyncIterator[StartNode]:
    """Start nodes with settings (underscores for dots); they end with the test."""
    from broker.tests.alone import Node  # here, so that tests of single parts load single parts

    nodes: list[Node] = []

    async def start(
        clock: Clock | None = None,
        data: str = "data",
        disk: Disk | None = None,
        security: Mapping[str, Any] | None = None,
        **settings: str,
    ) -> Node:
        config = {
            "log.dirs": str(tmp_path / data),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "odradek.sync": "false",
            "offsets.topic.num.partitions": "3",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        node = await Node.start(config, clock=clock, disk=disk, log=structlog.get_logger("test"), **(security or {}))
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        await node.stop(grace_ms=100)


@pytest.fixture
async def node(start_node: StartNode) -> Node:
    """A node with default settings."""
    return await start_node()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open connections to a node; they end with the test."""
    clients: list[Client] = []

    async def open_connection(node: Node, host: str = "127.0.0.1", port: int | None = None) -> Client:
        client = Client(*await asyncio.open_connection(host, node.port if port is None else port))
        clients.append(client)
        return client

    yield open_connection
    for client in clients:
        client.close()


@pytest.fixture
async def client(node: Node, connect: Connect) -> Client:
    """A connection to the default node."""
    return await connect(node)


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    return batch


@pytest.fixture
def make_produce() -> Callable[..., ProduceRequest]:
    return produce_request
