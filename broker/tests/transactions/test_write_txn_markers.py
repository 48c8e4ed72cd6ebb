"""WriteTxnMarkers: permissions, refused markers, and the wait for replication."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import StartNode
from broker.tests.three_brokers import Connect, Trio
from broker.tests.transactions.markers import PRODUCER, Only, marker, outcome, write

from odradek_broker.apis.write_txn_markers import RESPONSE_DELAY_MAX_MS
from odradek_broker.security.authorizer import Operation
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_producers import DescribeProducersRequest
from odradek_wire.records.builder import BatchBuilder

REQUEST_TIMEOUT_MS = 30_000


def transactional(sequence: int = 0, epoch: int = 0) -> bytes:
    """One record of the producer's open transaction."""
    builder = BatchBuilder(producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    builder.append(int(time.time() * 1000), None, b"v")
    return bytes(builder.build())


@pytest.fixture
async def node(start_node: StartNode) -> Node:
    """A broker that takes batches of transactions without verification."""
    return await start_node(transaction_partition_verification_enable="false")


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_marker_ends_the_open_transaction(node: Node, client: Any, version: int) -> None:
    await client.create_topic("t")
    await client.produce("t", transactional(), transactional_id="tx")
    assert await write(client, marker(coordinator_epoch=5), version=version) == {PRODUCER: {("t", 0): 0}}
    (topic,) = (await client.ask(DescribeProducersRequest([DescribeProducersRequest.TopicRequest("t", [0])]), 0)).topics
    (producer,) = topic.partitions[0].active_producers
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (5, -1)
    log = node.broker.partitions.get("t", 0).log  # type: ignore[union-attr]
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(PRODUCER, 0, 1, 2)]


async def test_a_committed_transaction_is_not_listed_as_aborted(node: Node, client: Any) -> None:
    await client.create_topic("t", compression_type="gzip")
    await client.produce("t", transactional(), transactional_id="tx")
    assert await outcome(client, marker(commit=True)) == 0
    log = node.broker.partitions.get("t", 0).log  # type: ignore[union-attr]
    assert (log.log_end_offset, log.aborted_transactions(0, 2)) == (2, [])
    assert log.producers.transactions.first_ongoing_offset is None


async def test_a_refused_marker_is_not_appended(node: Node, client: Any) -> None:
    await client.create_topic("t")
    await client.produce("t", transactional(epoch=3), transactional_id="tx")
    assert await outcome(client, marker(epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await outcome(client, marker(epoch=3, transaction_version=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    for nobody in (marker(producer=-1), marker(epoch=-1), marker(epoch=3, transaction_version=-1)):
        assert await outcome(client, nobody) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.broker.partitions.get("t", 0).log_end_offset == 1  # type: ignore[union-attr]
    assert await outcome(client, marker(epoch=4, transaction_version=2, coordinator_epoch=1)) == 0
    assert await outcome(client, marker(epoch=4)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert node.broker.partitions.get("t", 0).log_end_offset == 2  # type: ignore[union-attr]


async def test_the_response_has_one_row_for_each_producer(client: Any) -> None:
    await client.create_topic("t", 2)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await write(client, marker(0, 9), marker(topic="none"), marker(1), marker(1, producer=8)) == {
        PRODUCER: {("t", 0): 0, ("t", 9): missing, ("none", 0): missing, ("t", 1): 0},
        8: {("t", 1): 0},
    }
    assert await write(client) == {}


async def test_markers_need_alter_or_cluster_action_permission(node: Node, client: Any) -> None:
    await client.create_topic("t")
    node.broker.authorizer = Only(Operation.WRITE, Operation.DESCRIBE)
    assert await outcome(client, marker()) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert node.broker.partitions.get("t", 0).log_end_offset == 0  # type: ignore[union-attr]
    for allowed in (Operation.ALTER, Operation.CLUSTER_ACTION):
        node.broker.authorizer = Only(allowed)
        assert await outcome(client, marker()) == 0


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Trio]:
    settings = {"request.timeout.ms": REQUEST_TIMEOUT_MS, "replica.lag.time.max.ms": 2 * REQUEST_TIMEOUT_MS}
    found = Trio(tmp_path, connect, {name: str(value) for name, value in settings.items()})
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def test_a_marker_is_acknowledged_when_all_replicas_in_sync_have_it(trio: Trio) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    trio.hold_back(1)
    waiting = asyncio.ensure_future(outcome(client, marker()))
    await trio.until(lambda: trio.hosted(1).log_end_offset == 1)
    assert not waiting.done()
    trio.let_go(1)
    await trio.until(waiting.done)
    assert waiting.result() == 0
    assert trio.log_of(1) == trio.log_of(2) != b""


async def test_a_marker_that_is_not_replicated_in_time_times_out(trio: Trio) -> None:
    await trio.create([1, 2], min_insync_replicas="2")
    client = await trio.client(1)
    trio.hold_back(1)
    waiting = asyncio.ensure_future(outcome(client, marker()))
    await trio.until(lambda: trio.hosted(1).log_end_offset == 1)
    trio.clock.advance_timeouts(REQUEST_TIMEOUT_MS)
    await trio.until(waiting.done)
    assert waiting.result() == ErrorCode.REQUEST_TIMED_OUT


async def test_a_response_does_not_wait_long_for_slow_partitions(trio: Trio) -> None:
    await trio.create([1, 2])
    await trio.create([1], topic="u")
    client = await trio.client(1)
    trio.hold_back(1)
    waiting = asyncio.ensure_future(write(client, marker(), marker(producer=8, topic="u")))
    await trio.until(lambda: trio.hosted(1).log_end_offset == 1)
    before_ms = trio.clock.monotonic_ms()
    await trio.until(waiting.done)
    assert waiting.result() == {PRODUCER: {("t", 0): ErrorCode.REQUEST_TIMED_OUT}, 8: {("u", 0): 0}}
    assert trio.clock.monotonic_ms() - before_ms < 2 * RESPONSE_DELAY_MAX_MS < REQUEST_TIMEOUT_MS
    assert not trio.hosted(1).watchers, "no operation waits after the response"


async def test_a_response_waits_while_no_outcome_is_known(trio: Trio) -> None:
    await trio.create([1, 2], partitions=2)
    client = await trio.client(1)
    trio.hold_back(1)
    waiting = asyncio.ensure_future(write(client, marker(0), marker(1, producer=8)))
    await trio.until(lambda: trio.hosted(1, 1).log_end_offset == 1)
    trio.clock.advance_timeouts(REQUEST_TIMEOUT_MS // 2)
    trio.let_go(1)
    await trio.until(waiting.done)
    assert [len(trio.log_of(2, index)) > 0 for index in (0, 1)] == [True, True]
    assert waiting.result() == {PRODUCER: {("t", 0): 0}, 8: {("t", 1): 0}}


async def test_only_a_leader_with_min_insync_replicas_takes_markers(trio: Trio) -> None:
    await trio.create([1, 2], min_insync_replicas="2")
    assert await outcome(await trio.client(2), marker()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await outcome(await trio.client(0), marker()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await trio.cluster.kill_broker(2)
    client = await trio.client(1)
    assert await outcome(client, marker()) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert trio.hosted(1).log_end_offset == 0
