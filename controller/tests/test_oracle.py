"""Apache Kafka 4.3 as the oracle: it returns the errors that the tests of the commands expect."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import TypeVar

import pytest
from controller.tests.commands.refused_configs import REFUSED as REFUSED_CONFIGS
from controller.tests.commands.refused_topics import GROW_REFUSED, LONG, topic
from controller.tests.commands.refused_topics import REFUSED as REFUSED_TOPICS
from odradek_peers import KAFKA_4_3, ApacheKafka

from odradek_wire.errors import ErrorCode
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.create_partitions import CreatePartitionsResponse
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

pytestmark = pytest.mark.peers

R = TypeVar("R", bound=Message)


class Connection:
    """A connection with one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._correlation_id = 0

    def ask(self, request: Message, version: int, answer: type[R]) -> R:
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, "oracle")
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))[0]
        return decode_response(answer, version, self._socket.recv(size, socket.MSG_WAITALL))[1]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Connection]:
    with ApacheKafka(KAFKA_4_3) as broker:
        connection = Connection(broker.port)
        wanted = CreateTopicsRequest(topics=[topic("ok"), topic("a.b"), topic("two", 2), topic("t")])
        created = connection.ask(wanted, 7, CreateTopicsResponse)
        assert [result.error_code for result in created.topics] == [0] * 4
        yield connection
        connection.close()


def test_kafka_refuses_the_same_topics_with_the_same_messages(oracle: Connection) -> None:
    differences = []
    for wanted, error, message in REFUSED_TOPICS:
        response = oracle.ask(CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse)
        result = response.topics[0]
        if (ErrorCode(result.error_code).name, result.error_message) != (error, message):
            differences.append((wanted.name if wanted.name != LONG else "long", result.error_message, message))
    assert differences == []


def test_kafka_refuses_the_same_new_partitions_with_the_same_messages(oracle: Connection) -> None:
    differences = []
    for request, error, message in GROW_REFUSED:
        result = oracle.ask(request, 3, CreatePartitionsResponse).results[0]
        if (ErrorCode(result.error_code).name, result.error_message) != (error, message):
            differences.append((request, result.error_message, message))
    assert differences == []


def test_kafka_refuses_the_same_configurations_with_the_same_messages(oracle: Connection) -> None:
    differences = []
    for kind, name, item, error, message in REFUSED_CONFIGS:
        if kind == 8:
            continue  # loggers are the broker's own
        configs = [IncrementalAlterConfigsRequest.AlterableConfig(*item)]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)
        response = oracle.ask(IncrementalAlterConfigsRequest([resource]), 1, IncrementalAlterConfigsResponse)
        result = response.responses[0]
        if (ErrorCode(result.error_code).name, result.error_message) != (error, message):
            differences.append((kind, name, item, result.error_message, message))
    assert differences == []
