"""Responses larger than a socket's buffer: with sendfile, without it, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_wire.frames import decode_response
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.conversion import read_any

on_each_loop = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
MakeBatch = Callable[..., bytes]
SIZES = (100, 70_000, 3_000_000, 10, 8_000_000)


def fetch(offset: int, max_bytes: int = 50_000_000) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])])


async def read_back(node: Node, client: Any, make_batch: MakeBatch) -> None:
    """Write records of many sizes, and fetch them by a client that reads several responses late."""
    await client.create_topic("t", max_message_bytes="10000000")
    for number, size in enumerate(SIZES):
        answer = await client.produce("t", make_batch(bytes((number,)) * size))
        assert answer.error_code == 0
    for _ in range(3):
        for offset in range(len(SIZES)):
            client.send(fetch(offset), 11)
    await client.writer.drain()
    for _ in range(20):
        await asyncio.sleep(0)
    for _ in range(3):
        for offset in range(len(SIZES)):
            _, response = decode_response(FetchResponse, 11, await client.receive_frame())
            records = response.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            found = [bytes(record.value or b"") for record in read_any(records.tobytes())]
            assert found == [bytes((number,)) * SIZES[number] for number in range(offset, len(SIZES))]


@on_each_loop
async def test_large_responses_arrive_whole_with_sendfile(node: Node, client: Any, make_batch: MakeBatch) -> None:
    await read_back(node, client, make_batch)


@on_each_loop
async def test_large_responses_arrive_whole_without_sendfile(
    node: Node, client: Any, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sendfile", raising=False)
    await read_back(node, client, make_batch)


@on_each_loop
async def test_a_client_may_disconnect_in_the_middle_of_a_response(
    node: Node, connect: Any, make_batch: MakeBatch
) -> None:
    leaving, other = await connect(node), await connect(node)
    await other.create_topic("t", max_message_bytes="10000000")
    await other.produce("t", make_batch(b"x" * 9_000_000))
    leaving.send(fetch(0), 11)
    await leaving.reader.readexactly(1000)
    leaving.writer.transport.abort()
    async with asyncio.timeout(10):
        while len(node.server.connections) > 1:
            await asyncio.sleep(0)
    other.send(fetch(0), 11)
    assert len(await other.receive_frame()) > 9_000_000
