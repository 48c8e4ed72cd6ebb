"""The memory budget: receiving stops when it is exhausted, conversions wait for room, and no wait is endless."""

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.memory import MemoryBudget
from odradek_wire.errors import ErrorCode
from odradek_wire.frames import encode_request
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.attributes import Compression
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.conversion import down_convert, read_any

on_each_loop = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
METADATA = MetadataRequest([])
MakeProduce = Callable[..., ProduceRequest]


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def fetch(max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchRequest.FetchPartition(0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchRequest.FetchTopic("t", partitions=[partition])]
    )


NOISE = random.Random(1).randbytes(4000)
"""Incompressible records, whose conversion needs more room than `SHORT` leaves."""
SHORT = 20_000
"""Room for the received requests, and no more."""


def compressed(value: bytes = NOISE) -> bytes:
    builder = BatchBuilder(compression=Compression.GZIP)
    builder.append(int(time.time() * 1000), b"key", value)
    return bytes(builder.build())


def error_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def end_of(node: Node) -> int:
    return node.broker.partitions.get("t", 0).log_end_offset  # type: ignore[union-attr]


# -- the budget alone -------------------------------------------------------------------------------------------------


def test_returned_memory_skips_closed_connections() -> None:
    budget = MemoryBudget(10)
    budget.take(10)
    served: list[bool] = []
    budget.when_available(lambda: None)
    budget.when_available(lambda: served.append(budget.take(10)))
    budget.give_back(10)
    assert served == [True]


def test_a_conversion_larger_than_the_budget_runs_alone() -> None:
    budget = MemoryBudget(10)
    budget.take(8)
    assert budget.has_room(2, held_bytes=0)
    assert not budget.has_room(3, held_bytes=0)
    assert budget.has_room(1000, held_bytes=8)


def test_blocked_requests_do_not_wait_for_each_other() -> None:
    budget = MemoryBudget(10)
    for _ in range(3):
        budget.take_unchecked(4)
    served: list[str] = []

    def serve(name: str) -> Callable[[], None]:
        def convert() -> None:
            served.append(name)
            budget.give_back(4)

        return convert

    budget.block_until_room(100, 4, serve("first"))
    budget.block_until_room(100, 4, serve("second"))
    assert served == []
    budget.give_back(4)
    assert (served, budget.used, budget.blocked_bytes) == (["first", "second"], 0, 0)


def test_no_bytes_are_taken_while_a_request_is_blocked() -> None:
    budget = MemoryBudget(10)
    budget.take_unchecked(2)
    assert budget.take(7)
    served: list[str] = []

    def convert() -> None:
        served.append("in hand")
        budget.give_back(2)

    budget.block_until_room(5, 2, convert)
    budget.when_available(lambda: served.append(f"without: {budget.take(4)}"))
    for _ in range(3):
        budget.give_back(1)
        assert not budget.take(1)
        assert served == []
    budget.give_back(1)
    assert served == ["in hand", "without: True"]
    assert (budget.used, budget.blocked_bytes) == (7, 0)


def test_a_small_conversion_does_not_wait_behind_a_large_one() -> None:
    budget = MemoryBudget(20)
    budget.take_unchecked(4)
    assert budget.take(15)
    served: list[str] = []
    budget.block_until_room(100, 2, lambda: served.append("large"))
    budget.block_until_room(3, 2, lambda: served.append("small"))
    budget.give_back(5)
    assert (served, budget.blocked_bytes) == (["small"], 2)
    budget.give_back(2)  # the small conversion ends
    assert served == ["small"]
    budget.give_back(10)
    assert served == ["small", "large"]


def test_a_thousand_callbacks_are_called_without_recursion() -> None:
    budget = MemoryBudget(10)
    budget.take(10)
    served: list[int] = []

    def serve(number: int) -> Callable[[], None]:
        def take_and_give_back() -> None:
            assert budget.take(10)
            served.append(number)
            budget.give_back(10)

        return take_and_give_back

    for number in range(1000):
        budget.when_available(serve(number))
    budget.give_back(10)
    assert served == list(range(1000))


def test_a_forgotten_callback_is_not_called() -> None:
    budget = MemoryBudget(10)
    budget.take_unchecked(14)
    served: list[bool] = []

    def convert() -> None:
        served.append(True)

    budget.block_until_room(100, 4, convert)
    budget.forget(convert)
    budget.give_back(4)
    budget.give_back(10)
    assert (served, budget.blocked_bytes) == ([], 0)


# -- reading ----------------------------------------------------------------------------------------------------------


@on_each_loop
async def test_reading_stops_while_the_memory_budget_is_exhausted(
    node: Node, connect: Any, make_batch: Callable[..., bytes], make_produce: MakeProduce
) -> None:
    budget = node.server.buffers.budget
    one, other = await connect(node), await connect(node)
    await one.create_topic("t", max_message_bytes="5000000")
    budget.limit = 3_000_000
    for client in (one, other):
        frame = encode_request(make_produce("t", make_batch(b"x" * 2_000_000)), 9, 5, "c")
        client.last = struct.pack(">i", len(frame)) + frame
        client.writer.write(client.last[:1_000_000])
    await until(lambda: budget.used > 2_000_000)
    assert budget.used < 3_000_000
    for client in (one, other):
        client.writer.write(client.last[1_000_000:])
    answers = [(await client.receive(ProduceResponse, 9))[1] for client in (one, other)]
    assert [a.responses[0].partition_responses[0].error_code for a in answers] == [0, 0]
    await until(lambda: budget.used == 0)


@on_each_loop
async def test_a_connection_does_not_wait_for_memory_that_it_holds_itself(
    node: Node, client: Any, make_batch: Callable[..., bytes], make_produce: MakeProduce
) -> None:
    await client.create_topic("t", max_message_bytes="5000000")
    budget = node.server.buffers.budget
    budget.limit = 1_000_000
    frame = encode_request(make_produce("t", make_batch(b"x" * 2_000_000)), 9, 5, "c")
    message = struct.pack(">i", len(frame)) + frame
    client.writer.write(message[:2])  # the size of the request is not known yet
    await until(lambda: budget.used > 0)
    client.writer.write(message[2:])
    assert error_of((await client.receive(ProduceResponse, 9))[1]) == ErrorCode.NONE
    await until(lambda: budget.used == 0)


@on_each_loop
async def test_requests_that_wait_for_memory_stay_in_order(client: Any, node: Node) -> None:
    await client.create_topic("t")
    budget = node.server.buffers.budget
    held = budget.limit
    budget.take_unchecked(held)
    first = client.send(fetch(max_wait_ms=50), 11)
    await until(lambda: len(node.broker.purgatory) == 1)
    (connection,) = node.server.connections
    connection.receiver.active = False
    second = client.send(METADATA, 9)
    await until(lambda: connection.receiver.active)  # the request has arrived and finds no room
    assert (await client.receive(FetchResponse, 11))[0] == first
    third = client.send(METADATA, 9)
    await client.writer.drain()
    budget.give_back(held)
    assert [(await client.receive(MetadataResponse, 9))[0] for _ in range(2)] == [second, third]


# -- conversion -------------------------------------------------------------------------------------------------------


@on_each_loop
@pytest.mark.parametrize("kind", ["compressed", "message set", "recompressed"])
async def test_a_converted_produce_waits_for_room_and_is_handled_once(
    node: Node, connect: Any, make_batch: Callable[..., bytes], make_produce: MakeProduce, kind: str
) -> None:
    client, other = await connect(node), await connect(node)
    await client.create_topic("t", **({"compression_type": "gzip"} if kind == "recompressed" else {}))
    plain = make_batch(NOISE)
    records, version = {
        "compressed": (compressed(), 9),
        "message set": (bytes(down_convert(plain, 1)), 2),
        "recompressed": (plain, 9),
    }[kind]
    budget = node.server.buffers.budget
    held = budget.limit - SHORT
    budget.take_unchecked(held)
    before = route(node, version).requests
    client.send(make_produce("t", records), version)
    second = client.send(METADATA, 9)
    await until(lambda: any(each.receiver.waits_for_memory for each in node.server.connections))
    assert (await other.ask(METADATA, 9)).brokers != []
    assert end_of(node) == 0
    budget.give_back(held)
    _, response = await client.receive(ProduceResponse, version)
    assert (await client.receive(MetadataResponse, 9))[0] == second
    assert (error_of(response), end_of(node)) == (ErrorCode.NONE, 1)
    assert route(node, version).requests == before + 1
    await until(lambda: (budget.used, budget.blocked_bytes) == (0, 0))


@on_each_loop
async def test_only_smaller_produces_pass_a_blocked_produce(
    node: Node, connect: Any, make_produce: MakeProduce, capsys: pytest.CaptureFixture[str]
) -> None:
    large, small, split = [await connect(node) for _ in range(3)]
    await large.create_topic("t")
    budget = node.server.buffers.budget
    held = budget.limit - SHORT
    budget.take_unchecked(held)
    large.send(make_produce("t", compressed(random.Random(2).randbytes(20_000))), 9, "large")
    await until(lambda: budget.blocked_bytes > 20_000)
    small.send(make_produce("t", compressed()), 9, "small")
    await until(lambda: budget.blocked_bytes > 24_000)
    budget.give_back(60_000)  # enough for one of them
    assert error_of((await small.receive(ProduceResponse, 9))[1]) == ErrorCode.NONE
    frame = encode_request(METADATA, 9, 1, "split")
    split.writer.write(struct.pack(">i", len(frame)) + frame[:-1])
    await until(lambda: sum(each.receiver.waits_for_memory for each in node.server.connections) == 2)
    assert (budget.used - budget.blocked_bytes, end_of(node)) == (held - 60_000, 1)
    budget.give_back(held - 60_000)
    assert error_of((await large.receive(ProduceResponse, 9))[1]) == ErrorCode.NONE
    split.writer.write(frame[-1:])
    assert (await split.receive(MetadataResponse, 9))[1].brokers != []
    await until(lambda: (budget.used, budget.blocked_bytes) == (0, 0))
    await node.stop()  # logs the warnings that follow another one within a second
    lines = [line for line in capsys.readouterr().out.splitlines() if "memory for requests is exhausted" in line]
    assert ("PRODUCE v9" in lines[0], "client_id=large" in lines[0]) == (True, True)
    assert ("METADATA v9" in lines[-1], "client_id=split" in lines[-1]) == (True, True)
    assert sum(1 if (found := re.search(r"count=(\d+)", line)) is None else int(found[1]) for line in lines) == 3


async def test_a_large_produce_needs_room_only_before_its_first_slice(
    node: Node, client: Any, make_batch: Callable[..., bytes]
) -> None:
    await client.create_topic("t", 30)
    budget = node.server.buffers.budget
    budget.limit = 2_000_000  # less than the receive buffer, a copy of the records, and a conversion
    batches = [compressed(random.Random(3).randbytes(300_000)), *[make_batch(b"x" * 20_000)] * 29]
    data = [ProduceRequest.PartitionProduceData(index, records) for index, records in enumerate(batches)]
    request = ProduceRequest(None, -1, 5000, [ProduceRequest.TopicProduceData("t", partition_data=data)])
    response = await client.ask(request, 9)
    assert [each.error_code for each in response.responses[0].partition_responses] == [0] * 30
    await until(lambda: (budget.used, budget.blocked_bytes) == (0, 0))


async def test_a_plain_produce_does_not_wait_for_room(
    node: Node, client: Any, make_batch: Callable[..., bytes]
) -> None:
    await client.create_topic("t")
    budget = node.server.buffers.budget
    budget.take_unchecked(budget.limit)
    assert (await client.produce("t", make_batch(b"x"))).error_code == ErrorCode.NONE
    budget.give_back(budget.limit)


@on_each_loop
async def test_many_compressed_produces_share_a_small_budget(
    node: Node, connect: Any, make_produce: MakeProduce
) -> None:
    clients = [await connect(node) for _ in range(8)]
    await clients[0].create_topic("t", cleanup_policy="compact")
    budget = node.server.buffers.budget
    budget.limit = 100_000
    frames = [
        encode_request(make_produce("t", compressed(random.Random(n).randbytes(4000))), 9, 5, "c") for n in range(8)
    ]
    for client, frame in zip(clients, frames, strict=True):
        client.writer.write(struct.pack(">i", len(frame)) + frame[:40])
    await until(lambda: budget.used >= 6 * 16384)
    for client, frame in zip(clients, frames, strict=True):
        client.writer.write(frame[40:])
    responses = [(await client.receive(ProduceResponse, 9))[1] for client in clients]
    assert [error_of(response) for response in responses] == [0] * 8
    await until(lambda: (budget.used, budget.blocked_bytes) == (0, 0))


@on_each_loop
async def test_a_closed_connection_returns_the_bytes_of_its_conversion(
    node: Node, connect: Any, make_produce: MakeProduce
) -> None:
    cut, other = await connect(node), await connect(node)
    await other.create_topic("t")
    budget = node.server.buffers.budget
    held = budget.limit - SHORT
    budget.take_unchecked(held)
    cut.send(make_produce("t", compressed()), 9)
    await until(lambda: budget.blocked_bytes > 0)
    next(each for each in node.server.connections if each.receiver.waits_for_memory).abort()
    await until(lambda: len(node.server.connections) == 1)
    assert (budget.used, budget.blocked_bytes) == (held, 0)
    budget.give_back(held)
    assert (error_of(await other.ask(make_produce("t", compressed()), 9)), end_of(node)) == (ErrorCode.NONE, 1)


async def test_an_old_consumer_gets_no_records_without_room_to_convert(
    node: Node, client: Any, make_batch: Callable[..., bytes]
) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"value"))
    budget = node.server.buffers.budget
    budget.take_unchecked(budget.limit)

    async def values(version: int) -> tuple[int, list[bytes | None]]:
        response: FetchResponse = await client.ask(fetch(), version)
        data = response.responses[0].partitions[0]
        return data.error_code, [record.value for record in read_any(bytes(data.records or b""))]

    assert await values(3) == (ErrorCode.NONE, [])
    assert await values(4) == (ErrorCode.NONE, [b"value"])
    budget.give_back(budget.limit)
    assert await values(3) == (ErrorCode.NONE, [b"value"])


def route(node: Node, version: int) -> Any:
    found = node.server.routes[0].get(ProduceRequest.API_KEY << 16 | version)
    assert found is not None
    return found
