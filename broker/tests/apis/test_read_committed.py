"""read_committed: the last stable offset, aborted transactions, and the Fetches that wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect, StartNode
from broker.tests.fetches import fetch, fetch_request, values
from broker.tests.three_brokers import Trio
from broker.tests.transactions.markers import PRODUCER, marker, outcome

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_records import DeleteRecordsRequest
from odradek_wire.messages.describe_producers import DescribeProducersRequest
from odradek_wire.messages.fetch import FetchResponse
from odradek_wire.messages.list_offsets import ListOffsetsRequest
from odradek_wire.records.builder import BatchBuilder

MakeBatch = Callable[..., bytes]
SETTINGS = {"transaction.partition.verification.enable": "false"}


@pytest.fixture
async def node(start_node: StartNode) -> Node:
    return await start_node(**{name.replace(".", "_"): value for name, value in SETTINGS.items()})


def transactional(*values: bytes, sequence: int = 0, producer: int = PRODUCER, timestamp: int | None = None) -> bytes:
    """Return a batch of an open transaction."""
    builder = BatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    for value in values:
        builder.append(int(time.time() * 1000) if timestamp is None else timestamp, None, value)
    return bytes(builder.build())


async def produce(client: Any, *values: bytes, sequence: int = 0, producer: int = PRODUCER) -> None:
    await _accepted(client, transactional(*values, sequence=sequence, producer=producer))


async def _accepted(client: Any, records: bytes) -> None:
    assert (await client.produce("t", records, transactional_id="any")).error_code == 0


async def end(client: Any, *, commit: bool, producer: int = PRODUCER) -> None:
    assert await outcome(client, marker(producer=producer, commit=commit)) == 0


async def read(client: Any, offset: int = 0, **fields: Any) -> Any:
    return await fetch(client, "t", offset, isolation_level=1, **fields)


def skipped(data: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]


async def test_read_committed_ends_where_the_oldest_open_transaction_begins(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"before"))
    await produce(client, b"open")
    await client.produce("t", make_batch(b"behind"))
    data = await read(client)
    assert (values(data.records), data.high_watermark, data.last_stable_offset) == ([b"before"], 3, 1)
    assert data.aborted_transactions == []
    everything = await fetch(client, "t")
    assert (values(everything.records), everything.last_stable_offset) == ([b"before", b"open", b"behind"], 1)
    assert everything.aborted_transactions is None
    assert values((await read(client, 1)).records) == []
    assert values((await read(client, 2)).records) == []
    assert (await read(client, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", range(4, 19))
async def test_versions_with_batches_return_the_aborted_transactions(client: Any, version: int) -> None:
    topic_id = await client.create_topic("t")
    await produce(client, b"kept")
    await end(client, commit=True)
    await produce(client, b"dropped", sequence=1)
    await end(client, commit=False)
    data = await read(client, version=version, topic_id=topic_id)
    assert (skipped(data), data.last_stable_offset) == ([(PRODUCER, 2)], 4)
    assert values(data.records)[::2] == [b"kept", b"dropped"]
    assert skipped(await read(client, 4, version=version, topic_id=topic_id)) == []


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_completes_a_waiting_fetch_and_open_records_do_not(
    client: Any, node: Node, connect: Connect, commit: bool
) -> None:
    await client.create_topic("t")
    await produce(client, b"open")
    client.send(fetch_request("t", isolation_level=1, max_wait_ms=60_000), 11)
    writer = await connect(node)
    await produce(writer, b"more", sequence=1)
    partition = node.broker.partitions.get("t", 0)
    assert partition is not None
    assert partition.watchers
    await end(writer, commit=commit)
    _, response = await client.receive(FetchResponse, 11)
    data = response.responses[0].partitions[0]
    assert values(data.records)[:2] == [b"open", b"more"]
    assert (data.last_stable_offset, skipped(data)) == (3, [] if commit else [(PRODUCER, 0)])


async def test_a_session_returns_a_partition_when_its_transaction_ends(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"before"))
    await produce(client, b"open")
    first = await client.ask(fetch_request("t", 1, isolation_level=1, session_id=0, session_epoch=0), 11)
    assert first.responses[0].partitions[0].last_stable_offset == 1

    async def next_fetch(epoch: int) -> Any:
        request = fetch_request("t", isolation_level=1, session_id=first.session_id, session_epoch=epoch)
        request.topics = []
        return (await client.ask(request, 11)).responses

    assert await next_fetch(1) == []
    await client.produce("t", make_batch(b"behind"))
    (data,) = (await next_fetch(2))[0].partitions
    assert (data.high_watermark, data.last_stable_offset, bytes(data.records)) == (3, 1, b"")
    assert await next_fetch(3) == []
    await end(client, commit=False)
    (data,) = (await next_fetch(4))[0].partitions
    assert (data.last_stable_offset, values(data.records)[:2], skipped(data)) == (
        4,
        [b"open", b"behind"],
        [(PRODUCER, 1)],
    )


async def _offset(client: Any, timestamp: int, isolation_level: int = 1) -> tuple[int, int]:
    wanted = ListOffsetsRequest.ListOffsetsPartition(0, -1, timestamp)
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsRequest.ListOffsetsTopic("t", [wanted])])
    (found,) = (await client.ask(request, 7)).topics[0].partitions
    assert found.error_code == 0
    return found.offset, found.timestamp


async def test_list_offsets_of_committed_records_ends_at_the_last_stable_offset(
    client: Any, make_batch: MakeBatch
) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"before", timestamp=1000))
    await _accepted(client, transactional(b"open", timestamp=2000))
    assert [await _offset(client, -1, isolation) for isolation in (0, 1)] == [(2, -1), (1, -1)]
    assert [await _offset(client, 1500, isolation) for isolation in (0, 1)] == [(1, 2000), (-1, -1)]
    assert [await _offset(client, -3, isolation) for isolation in (0, 1)] == [(1, 2000), (-1, -1)]
    assert await _offset(client, 1000) == (0, 1000)
    await end(client, commit=False)
    assert await _offset(client, -1) == (3, -1)
    assert await _offset(client, 1500) == (1, 2000)


async def test_the_last_stable_offset_is_not_below_the_log_start_offset(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    await produce(client, b"a", b"b", b"c")
    await client.produce("t", make_batch(b"behind"))
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(0, 2)
    await client.ask(DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic("t", [wanted])], 1000), 2)
    assert await _offset(client, -1) == (2, -1)
    assert (await read(client, 2)).last_stable_offset == 2
    await end(client, commit=False)
    data = await read(client, 2)
    assert (data.last_stable_offset, skipped(data)) == (5, [(PRODUCER, 0)])


async def test_open_and_aborted_transactions_survive_a_restart(start_node: StartNode, connect: Connect) -> None:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    for stop in ("stop", "kill"):
        node = await start_node(data=stop, **settings)
        client = await connect(node)
        await client.create_topic("t")
        await produce(client, b"dropped")
        await end(client, commit=False)
        await produce(client, b"open", producer=8)
        await end(client, commit=True)
        before = await read(client)
        await getattr(node, stop)()
        client = await connect(await start_node(data=stop, **settings))
        after = await read(client)
        assert (after.last_stable_offset, skipped(after)) == (2, [(PRODUCER, 0)])
        assert bytes(after.records) == bytes(before.records)
        request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest("t", [0])])
        (topic,) = (await client.ask(request, 0)).topics
        found = {each.producer_id: each for each in topic.partitions[0].active_producers}
        assert (found[8].current_txn_start_offset, found[8].coordinator_epoch) == (2, -1)
        assert (found[PRODUCER].current_txn_start_offset, found[PRODUCER].coordinator_epoch) == (-1, 0)


# -- several brokers --------------------------------------------------------------------------------------------------


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Trio]:
    found = Trio(tmp_path, connect, {"replica.lag.time.max.ms": "600000", **SETTINGS})
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def test_a_transaction_is_stable_when_its_marker_is_replicated(trio: Trio) -> None:
    await trio.create([1, 2])
    client, reader = await trio.client(1), await trio.client(1)
    await produce(client, b"v")
    trio.hold_back(1)
    reader.send(fetch_request("t", isolation_level=1, max_wait_ms=60_000), 11)
    leader = trio.hosted(1)
    waiting = asyncio.ensure_future(end(client, commit=False))
    await trio.until(lambda: leader.log_end_offset == 2 and trio.turned_away)
    # The leader has the marker, but another leader may not have it.
    assert (
        leader.high_watermark,
        leader.last_stable_offset,
        leader.log.producers.transactions.first_ongoing_offset,
    ) == (
        1,
        0,
        None,
    )
    trio.let_go(1)
    await trio.until(waiting.done)
    await waiting
    answered = asyncio.ensure_future(reader.receive(FetchResponse, 11))
    await trio.until(answered.done)
    data = answered.result()[1].responses[0].partitions[0]
    assert (data.last_stable_offset, skipped(data), len(values(data.records))) == (2, [(PRODUCER, 0)], 2)


async def test_replicas_and_the_next_leader_have_the_same_last_stable_offset(trio: Trio) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await produce(client, b"dropped")
    await end(client, commit=False)
    await produce(client, b"open", producer=8)
    follower = trio.hosted(2)
    await trio.until(lambda: follower.high_watermark == 3)
    assert follower.last_stable_offset == 2
    data = await read(await trio.client(2), rack_id="rack-2")
    assert (data.last_stable_offset, skipped(data), values(data.records)[:1]) == (2, [(PRODUCER, 0)], [b"dropped"])
    await trio.cluster.kill_broker(1)
    await trio.until(lambda: trio.partition.leader == 2 and not follower.error)
    client = await trio.client(2)
    data = await read(client)
    assert (data.last_stable_offset, skipped(data)) == (2, [(PRODUCER, 0)])
    await end(client, commit=True, producer=8)
    assert (await read(client)).last_stable_offset == 4


async def test_isolation_level_does_not_limit_a_replica(trio: Trio) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await produce(client, b"dropped")
    await end(client, commit=False)
    await produce(client, b"open", producer=8)
    data = await read(client, replica_id=2)
    assert (len(values(data.records)), data.aborted_transactions) == (3, None)


async def test_completed_transactions_are_forgotten_without_readers(trio: Trio) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    for sequence in range(20):
        await produce(client, b"v", sequence=sequence)
        await end(client, commit=True)
    for broker in (1, 2):
        partition = trio.hosted(broker)
        await trio.until(lambda partition=partition: partition.high_watermark == 40)
        assert len(partition.log.producers.transactions) <= 1
