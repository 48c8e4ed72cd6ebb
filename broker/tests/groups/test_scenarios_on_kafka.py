"""The scenarios on Apache Kafka itself: what the tables say is what Kafka 4.3 answers."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from odradek_peers import KAFKA_4_3, ApacheKafka

from odradek_wire.apis import APIS
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.describe_groups import DescribeGroupsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = pytest.mark.peers

CONFIG = {
    "group.min.session.timeout.ms": "1",
    "group.max.size": "3",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
A_WHILE_S = 0.4
"""How long an answer that must not come yet is waited for."""


class Sockets:
    """One connection for each client of a scenario, to any broker."""

    def __init__(self, port: int, wait_s: float = A_WHILE_S) -> None:
        self.port = port
        self.wait_s = wait_s
        self.connections: dict[str, socket.socket] = {}
        self.waiting: dict[str, tuple[type[Message], int]] = {}

    def ask(self, client: str, request: Message, version: int) -> Message | None:
        if client not in self.connections:
            self.connections[client] = socket.create_connection(("127.0.0.1", self.port))
        frame = encode_request(request, version, 1, client)
        self.connections[client].sendall(struct.pack(">i", len(frame)) + frame)
        self.waiting[client] = (APIS[request.API_KEY].response_class(), version)  # type: ignore[index]
        return self.answer(client)

    def answer(self, client: str) -> Message | None:
        connection = self.connections[client]
        connection.settimeout(self.wait_s)
        try:
            head = connection.recv(4)
        except TimeoutError:
            return None
        connection.settimeout(10)
        (size,) = struct.unpack(">i", head)
        frame = b""
        while len(frame) < size:
            frame += connection.recv(size - len(frame))
        cls, version = self.waiting.pop(client)
        return decode_response(cls, version, frame)[1]

    def pass_time(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[int]:
    with ApacheKafka(KAFKA_4_3, config=CONFIG) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        setup = Sockets(port, wait_s=10)
        topic = CreateTopicsRequest.CreatableTopic("t", num_partitions=3, replication_factor=1)
        setup.ask("setup", CreateTopicsRequest([topic], timeout_ms=10_000), 5)
        deadline = time.monotonic() + 30
        names = [f"any-{number}" for number in range(500)]
        while time.monotonic() < deadline:
            setup.ask("setup", FindCoordinatorRequest(key="g"), 3)
            described: Any = setup.ask("setup", DescribeGroupsRequest(names), 5)
            if not any(group.error_code for group in described.groups):
                break
        setup.close()
        yield port


def test_kafka_answers_as_written(scenario: str, play: Any, kafka: int) -> None:
    sockets = Sockets(kafka)
    try:
        play(sockets, prefix=f"{uuid.uuid4()}-").play(scenario)
    finally:
        sockets.close()
