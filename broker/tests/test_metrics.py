"""The HTTP port: readiness and figures, under the names of Kafka's metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.metrics import Metric, render
from odradek_wire.messages.fetch import FetchRequest

MakeBatch = Callable[..., bytes]


async def get(node: Node, request: bytes) -> tuple[bytes, str]:
    """(status line, body)."""
    assert node.http is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.http.port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body.decode()


def path(name: str) -> bytes:
    return f"GET {name} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.fixture
async def node(start_node: Any) -> Any:
    return await start_node(metrics_http_port="0")


async def test_without_a_port_nothing_is_served(start_node: Any) -> None:
    assert (await start_node(data="other")).http is None


async def test_a_node_that_runs_is_ready(node: Node) -> None:
    assert await get(node, path("/ready")) == (b"HTTP/1.1 200 OK", "ready\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (path("/other"), b"HTTP/1.1 404 Not Found"),
        (b"POST /ready HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"x" * 20_000 + b"\r\n\r\n", b""),
    ],
)
async def test_other_requests_are_refused(node: Node, request_bytes: bytes, status: bytes) -> None:
    try:
        found = (await get(node, request_bytes))[0]
    except ConnectionError:
        found = b""
    assert found == status


async def test_figures_follow_what_clients_do(node: Node, connect: Any, make_batch: MakeBatch) -> None:
    client = await connect(node)
    await client.create_topic("t", partitions=2)
    one = make_batch(b"a", b"b")
    for _ in range(3):
        await client.produce("t", one, partition=1)
    wanted = FetchRequest.FetchPartition(1, partition_max_bytes=len(one))
    await client.ask(FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])]), 11)
    status, body = await get(node, path("/metrics"))
    lines = body.splitlines()
    assert status == b"HTTP/1.1 200 OK"
    for line in (
        'kafka_network_RequestMetrics_RequestsPerSec_total{request="PRODUCE",version="9"} 3',
        'kafka_server_BrokerTopicMetrics_MessagesInPerSec_total{topic="t"} 6',
        f'kafka_server_BrokerTopicMetrics_BytesInPerSec_total{{topic="t"}} {3 * len(one)}',
        f'kafka_server_BrokerTopicMetrics_BytesOutPerSec_total{{topic="t"}} {len(one)}',
        'kafka_log_Log_LogEndOffset{topic="t",partition="1"} 6',
        "kafka_server_ReplicaManager_PartitionCount 2",
        "kafka_controller_KafkaController_GlobalTopicCount 1",
        "kafka_server_socket_server_metrics_connection_count 1",
    ):
        assert line in lines


def test_labels_are_escaped_and_large_numbers_kept() -> None:
    metrics = [
        Metric("a", "gauge", "An a.", [({"topic": 'x"\\'}, 1.5)]),
        Metric("b", "counter", "A b.", [({}, 12345678901)]),
    ]
    assert render(metrics) == (
        '# HELP a An a.\n# TYPE a gauge\na{topic="x\\"\\\\"} 1.5\n# HELP b A b.\n# TYPE b counter\nb 12345678901\n'
    )
