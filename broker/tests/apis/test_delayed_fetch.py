"""A Fetch that waits for `min_bytes` completes early for the reasons of Kafka's DelayedFetch, and for no other.

`max_wait_ms` is longer than a test may take, so that every response is an early one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect, StartNode
from broker.tests.three_brokers import TOPIC, Trio, configure

from odradek_broker.replication.partition import Partition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.builder import BatchBuilder

MakeBatch = Callable[..., bytes]
LONG_MS = 60_000
LARGE = 1 << 20


def part(offset: int, index: int = 0, *, last_fetched_epoch: int = -1, **fields: Any) -> FetchRequest.FetchPartition:
    found = FetchRequest.FetchPartition(index, fetch_offset=offset, partition_max_bytes=LARGE)
    found.last_fetched_epoch = last_fetched_epoch
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def request(*parts: FetchRequest.FetchPartition, topic: str = "t", **fields: Any) -> FetchRequest:
    found = FetchRequest(
        max_wait_ms=LONG_MS, min_bytes=LARGE, topics=[FetchRequest.FetchTopic(topic, partitions=[*parts])]
    )
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def errors_and_sizes(response: FetchResponse) -> dict[int, tuple[ErrorCode, int]]:
    """Return the error and the bytes of records of each partition."""
    return {
        data.partition_index: (ErrorCode(data.error_code), len(data.records or b""))
        for topic in response.responses
        for data in topic.partitions
    }


async def fetch(client: Any, *parts: FetchRequest.FetchPartition, **fields: Any) -> dict[int, tuple[ErrorCode, int]]:
    return errors_and_sizes(await client.ask(request(*parts, **fields), 12))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def waits(
    client: Any, node: Node, *parts: FetchRequest.FetchPartition, version: int = 12, **fields: Any
) -> asyncio.Task[Any]:
    """Send a Fetch, and return when it waits at the broker."""
    waiting = asyncio.create_task(client.ask(request(*parts, **fields), version))
    await until(lambda: len(node.broker.purgatory))
    return waiting


def hosted(node: Node) -> Partition:
    found = node.broker.partitions.get("t", 0)
    assert found is not None
    return found


@pytest.fixture
async def writer(node: Node, connect: Connect) -> Any:
    return await connect(node)


# -- segments and bytes -----------------------------------------------------------------------------------------------


async def test_a_fetch_on_an_older_segment_than_the_log_end_completes(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", segment_bytes="1048576")
    large = make_batch(b"v" * 400_000)
    for _ in range(3):
        await client.produce("t", large)
    assert await fetch(client, part(0)) == {0: (ErrorCode.NONE, 2 * len(large))}


async def test_a_fetch_of_a_session_on_an_older_segment_completes(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", segment_bytes="1048576")
    large = make_batch(b"v" * 400_000)
    for _ in range(3):
        await client.produce("t", large)
    first = await client.ask(request(part(0), session_epoch=0), 12)
    more = request(part(1), session_id=first.session_id, session_epoch=1)
    assert errors_and_sizes(await client.ask(more, 12)) == {0: (ErrorCode.NONE, len(large))}


@pytest.mark.parametrize("offset", [0, 1])
async def test_a_waiting_fetch_completes_when_its_segment_is_rolled(
    client: Any, node: Node, writer: Any, make_batch: MakeBatch, offset: int
) -> None:
    """Offset 1 is the log's end; the batch that rolls the segment is sent although it is smaller than `min_bytes`."""
    await client.create_topic("t", segment_bytes="1048576")
    first, second = make_batch(b"v" * 700_000), make_batch(b"v" * 400_000)
    await writer.produce("t", first)
    waiting = await waits(client, node, part(offset))
    await writer.produce("t", second)
    assert errors_and_sizes(await waiting) == {0: (ErrorCode.NONE, len(second if offset else first))}


async def test_a_fetch_on_the_last_segment_waits(client: Any, node: Node, writer: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", segment_bytes="1048576")
    large = make_batch(b"v" * 400_000)
    for _ in range(3):
        await client.produce("t", large)
    waiting = await waits(client, node, part(2))
    await writer.produce("t", large)
    assert not waiting.done()
    waiting.cancel()


async def test_readers_of_committed_records_compare_with_the_last_stable_offset(
    client: Any, start_node: StartNode, connect: Connect, make_batch: MakeBatch
) -> None:
    node = await start_node(data="other", transaction_partition_verification_enable="false")
    reader = await connect(node)
    await reader.create_topic("t", segment_bytes="1048576")
    large = make_batch(b"v" * 900_000)
    await reader.produce("t", large)
    builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(0, None, b"v" * 900_000)
    await reader.produce("t", bytes(builder.build()), transactional_id="any")
    assert await fetch(reader, part(0), isolation_level=1) == {0: (ErrorCode.NONE, len(large))}
    assert await fetch(reader, part(2), isolation_level=1) == {0: (ErrorCode.NONE, 0)}
    assert await fetch(reader, part(2), isolation_level=1, min_bytes=1) == {0: (ErrorCode.NONE, 0)}
    (await waits(reader, node, part(1), isolation_level=1)).cancel()


async def test_bytes_beyond_max_bytes_count_for_min_bytes(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", partitions=2)
    one = make_batch(b"v" * 60_000)
    await client.produce("t", one)
    await client.produce("t", one, partition=1)
    found = await fetch(client, part(0), part(0, 1), min_bytes=100_000, max_bytes=100_000)
    assert found == {0: (ErrorCode.NONE, len(one)), 1: (ErrorCode.NONE, 0)}


async def test_bytes_beyond_partition_max_bytes_do_not_count_for_min_bytes(
    client: Any, node: Node, writer: Any, make_batch: MakeBatch
) -> None:
    await client.create_topic("t", partitions=2)
    one = make_batch(b"v" * 20_000)
    for _ in range(5):
        await writer.produce("t", one)
    waiting = await waits(client, node, part(0, partition_max_bytes=30_000), part(0, 1), min_bytes=50_000)
    await writer.produce("t", one, partition=1)
    assert errors_and_sizes(await waiting) == {0: (ErrorCode.NONE, 30_000), 1: (ErrorCode.NONE, len(one))}


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_errors_of_reading_end_the_wait_for_other_partitions(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", partitions=2)
    await client.produce("t", make_batch(b"v"))
    cases = {
        ErrorCode.OFFSET_OUT_OF_RANGE: part(9, 1),
        ErrorCode.UNKNOWN_LEADER_EPOCH: part(0, 1, current_leader_epoch=9),
    }
    for error, wrong in cases.items():
        assert (await fetch(client, part(1), wrong))[1] == (error, 0)


async def test_a_diverging_epoch_ends_the_wait(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", partitions=2)
    await client.produce("t", make_batch(b"v"), partition=1)
    response = await client.ask(request(part(0), part(5, 1, last_fetched_epoch=0)), 12)
    data = response.responses[0].partitions[1]
    assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 1)


async def test_an_unknown_partition_does_not_end_the_wait_for_others(
    client: Any, node: Node, writer: Any, make_batch: MakeBatch
) -> None:
    await client.create_topic("t")
    half, rest = make_batch(b"v" * 40_000), make_batch(b"v" * 20_000)
    await client.produce("t", half)
    waiting = await waits(client, node, part(0), part(0, 7), min_bytes=50_000)
    await writer.produce("t", make_batch(b"v"))
    assert not waiting.done()
    await writer.produce("t", rest)
    found = errors_and_sizes(await waiting)
    assert found[7] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert found[0][1] > 50_000
    assert await fetch(client, part(0, 7)) == {7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}


@pytest.mark.parametrize(
    ("change", "epoch", "error"),
    [
        (lambda each: each.resign(each.leader_epoch + 1), -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda each: each.resign(each.leader_epoch + 1), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (lambda each: each.take_offline(), -1, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
    ids=["another broker leads", "another epoch", "offline log directory"],
)
async def test_a_partition_that_is_no_longer_served_ends_the_wait(
    client: Any, node: Node, change: Callable[[Partition], None], epoch: int, error: ErrorCode
) -> None:
    """In version 10: from version 11 on a consumer may read from a follower."""
    await client.create_topic("t", partitions=2)
    waiting = await waits(client, node, part(0, current_leader_epoch=epoch), part(0, 1), version=10)
    change(hosted(node))
    found = errors_and_sizes(await waiting)
    assert found[0] == (error, 0)


async def test_a_fetch_without_partitions_or_without_a_wait_completes(client: Any) -> None:
    await client.create_topic("t")
    assert await fetch(client) == {}
    assert await fetch(client, part(0), max_wait_ms=0) == {0: (ErrorCode.NONE, 0)}
    assert await fetch(client, part(0), min_bytes=0) == {0: (ErrorCode.NONE, 0)}


# -- replicas ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Trio]:
    found = Trio(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


def of_follower(trio: Trio, offset: int, **fields: Any) -> FetchRequest:
    """Return a Fetch that broker 2 sends as a follower."""
    topic_id = trio.cluster.controller.image.topics["t"].id
    found = request(part(offset, **fields))
    found.topics[0].topic, found.topics[0].topic_id = "", topic_id
    found.replica_state = FetchRequest.ReplicaState(2, trio.cluster.controller.image.brokers[2].epoch)
    return found


async def test_a_preferred_read_replica_completes_a_fetch(trio: Trio, make_batch: MakeBatch) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"v"))
    response = await client.ask(request(part(0), rack_id="rack-2"), 12)
    assert response.responses[0].partitions[0].preferred_read_replica == 2


async def test_a_higher_high_watermark_completes_the_fetch_of_a_follower(trio: Trio, make_batch: MakeBatch) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"v"))
    response = await client.ask(of_follower(trio, 1, high_watermark=0), 18)
    assert response.responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize("throttled", [False, True])
async def test_a_throttled_follower_on_an_older_segment_waits(
    trio: Trio, make_batch: MakeBatch, throttled: bool
) -> None:
    await trio.create([1, 2], segment_bytes="1048576")
    client = await trio.client(1)
    await trio.cluster.stop_broker(2)
    large = make_batch(b"v" * 600_000)
    for _ in range(2):
        await client.produce("t", large)
    if throttled:
        await configure(client, TOPIC, "t", {"leader.replication.throttled.replicas": "0:1"})
        throttle = trio.cluster.nodes[1].broker.replication_quotas.leader
        throttle.bytes_per_second = 1
        throttle.record(1_000_000, trio.clock.monotonic_ms())
    waiting = asyncio.create_task(client.ask(of_follower(trio, 0), 15))
    if throttled:
        await until(lambda: len(trio.cluster.nodes[1].broker.purgatory))
        throttle.bytes_per_second = 1 << 40
        trio.clock.advance_timeouts(LONG_MS)
    assert errors_and_sizes(await waiting) == {0: (ErrorCode.NONE, len(large))}
