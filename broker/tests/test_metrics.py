"""The HTTP port: readiness, and metrics under Kafka's names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.compacted_topics import COMPACT, fill, log_of
from broker.tests.manual_clock import ManualClock
from broker.tests.transactions.producers import TransactionalProducer, Transactions, undecided

from odradek_broker.metrics import Metric, collect, render
from odradek_broker.network.interceptors import Disconnect
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest

MakeBatch = Callable[..., bytes]


async def get(node: Node, request: bytes) -> tuple[bytes, str]:
    """Return (status line, body)."""
    assert node.http is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.http.port)
    writer.write(request)
    async with asyncio.timeout(10):
        response = await reader.read()
    writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body.decode()


def path(name: str) -> bytes:
    return f"GET {name} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.fixture
async def node(start_node: Any) -> Any:
    return await start_node(metrics_http_port="0")


async def test_no_http_port_is_open_by_default(start_node: Any) -> None:
    assert (await start_node(data="other")).http is None


async def test_a_running_node_is_ready(node: Node) -> None:
    assert await get(node, path("/ready")) == (b"HTTP/1.1 200 OK", "ready\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (path("/other"), b"HTTP/1.1 404 Not Found"),
        (b"POST /ready HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"x" * 20_000 + b"\r\n\r\n", b""),
    ],
)
async def test_other_http_requests_are_refused(node: Node, request_bytes: bytes, status: bytes) -> None:
    try:
        found = (await get(node, request_bytes))[0]
    except ConnectionError:
        found = b""
    assert found == status


async def test_metrics_follow_the_requests_of_clients(node: Node, connect: Any, make_batch: MakeBatch) -> None:
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


@pytest.fixture
async def trio(tmp_path: Path, connect: Any) -> AsyncIterator[Transactions]:
    found = Transactions(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


WAYS = ("read", "written")
TRANSACTIONS = (
    'odradek_transactions{state="Ongoing"}',
    'odradek_transactions{state="CompleteCommit"}',
    'odradek_transactions{state="CompleteAbort"}',
    "odradek_transactions_oldest_open_seconds",
    'odradek_transactions_ended_total{outcome="committed"}',
    'odradek_transactions_ended_total{outcome="aborted"}',
    'odradek_transactions_ended_total{outcome="timed_out"}',
    "odradek_partitions_with_open_transactions",
    'kafka_cluster_Partition_LastStableOffsetLag{topic="t",partition="0"}',
    "kafka_server_ReplicaManager_PartitionsWithLateTransactionsCount",
)


def figures(node: Node, *names: str) -> tuple[float, ...]:
    text = render(collect(node.broker, node.server, node.log_manager.cleaner, 0.0))
    shown = dict(line.rsplit(" ", 1) for line in text.splitlines())
    return tuple(float(shown[name]) for name in names)


def transactional_producer(node: Node, connect: Any, transactional_id: str = "tx") -> TransactionalProducer:
    async def client(_: int) -> Any:
        return await connect(node)

    return TransactionalProducer(client, lambda: 0, transactional_id)


async def test_transactions_are_counted_by_state_and_outcome(start_node: Any, connect: Any) -> None:
    clock = ManualClock(int(time.time() * 1000))
    node = await start_node(clock=clock)
    await (await connect(node)).create_topic("t")
    assert figures(node, *TRANSACTIONS) == (0,) * 10
    assert node.broker.transactions_in_use == (None, None)  # reading metrics loads no coordinator

    producer = transactional_producer(node, connect)
    for commit in (True, False, True):
        assert await producer.init() == ErrorCode.NONE
        assert await producer.add(("t", 0)) == ErrorCode.NONE
        assert (await producer.produce(0), await producer.produce(0)) == (ErrorCode.NONE, ErrorCode.NONE)
        clock.advance_wall(1500)
        assert figures(node, *TRANSACTIONS[:4], *TRANSACTIONS[7:]) == (1, 0, 0, 1.5, 1, 2, 0)
        assert await producer.end(commit) == ErrorCode.NONE
    other = transactional_producer(node, connect, "other")
    assert await other.init(timeout_ms=10_000) == ErrorCode.NONE
    assert await other.add(("t", 0)) == ErrorCode.NONE
    assert await other.produce(0) == ErrorCode.NONE
    assert figures(node, *TRANSACTIONS) == (1, 1, 0, 0, 2, 1, 0, 1, 1, 0)
    clock.advance_timeouts(10_000)
    assert figures(node, *TRANSACTIONS) == (0, 1, 1, 0, 2, 1, 1, 0, 0, 0)


async def test_a_transaction_open_beyond_the_longest_timeout_is_late(start_node: Any, connect: Any) -> None:
    clock = ManualClock(int(time.time() * 1000))
    limits = {"transaction_max_timeout_ms": "60000", "transaction_partition_verification_enable": "false"}
    node = await start_node(clock=clock, **limits)
    await (await connect(node)).create_topic("t")
    stray = transactional_producer(node, connect)
    stray.producer = Producer(7, 0)
    assert await stray.produce(0) == ErrorCode.NONE
    for moved_ms, late in ((350_000, 0), (20_000, 1)):
        clock.advance_wall(moved_ms)
        assert figures(node, *TRANSACTIONS[7:]) == (1, 1, late)


async def test_an_unconfirmed_transaction_is_a_verification_failure(start_node: Any, connect: Any) -> None:
    node = await start_node()
    await (await connect(node)).create_topic("t")
    failures = "kafka_server_AddPartitionsToTxnManager_VerificationFailureRate_total"
    producer = transactional_producer(node, connect)
    assert await producer.init() == ErrorCode.NONE
    assert (await producer.produce(0), figures(node, failures)) == (ErrorCode.INVALID_TXN_STATE, (1,))
    assert await producer.add(("t", 0)) == ErrorCode.NONE
    assert (await producer.produce(0), figures(node, failures)) == (ErrorCode.NONE, (1,))


async def test_errors_and_time_outs_are_verification_failures(trio: Transactions) -> None:
    producer = trio.producer()
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    coordinator = await producer.coordinator()
    leader = trio.other_than(coordinator)
    await trio.create([leader])
    node = trio.cluster.nodes[leader]
    failures = "kafka_server_AddPartitionsToTxnManager_VerificationFailureRate_total"
    assert (await producer.produce(leader), figures(node, failures)) == (ErrorCode.INVALID_TXN_STATE, (1,))
    trio.cluster.nodes[coordinator].broker.interceptors.before_handle.append(lambda ctx, request: Disconnect())
    assert (await producer.produce(leader), figures(node, failures)) == (ErrorCode.NOT_ENOUGH_REPLICAS, (2,))


async def test_markers_are_counted_until_they_are_written(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    node = trio.cluster.nodes[await producer.coordinator()]
    left = "odradek_transaction_markers_left"
    again = "kafka_coordinator_transaction_TransactionMarkerChannelManager_UnknownDestinationQueueSize"
    assert figures(node, left, again) == (0, 0)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    assert figures(node, left) == (1,)
    await trio.until(lambda: figures(node, left, again) == (1, 1))
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert figures(node, left, again) == (0, 0)


async def test_compaction_is_counted_over_all_passes(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create_topic("t", **COMPACT)
    names = [f'odradek_log_cleaner_{what}_total{{what="{way}"}}' for what in ("records", "bytes") for way in WAYS]
    for passes, batches_read in ((1, 5), (2, 5 + 6)):
        await fill(client, node, batches=5)
        await node.cluster.clean_logs()
        left = log_of(node).size_bytes  # one batch of two records
        assert figures(node, *names, "odradek_log_cleaner_passes_total") == (
            2 * batches_read,
            2 * passes,
            left * batches_read,
            left * passes,
            passes,
        )


def test_labels_are_escaped_and_large_numbers_are_exact() -> None:
    metrics = [
        Metric("a", "gauge", "An a.", [({"topic": 'x"\\'}, 1.5)]),
        Metric("b", "counter", "A b.", [({}, 12345678901)]),
    ]
    assert render(metrics) == (
        '# HELP a An a.\n# TYPE a gauge\na{topic="x\\"\\\\"} 1.5\n# HELP b A b.\n# TYPE b counter\nb 12345678901\n'
    )
