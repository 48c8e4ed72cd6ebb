"""The syncs of appended records: before the response with `odradek.sync=always`, else by `flush.messages` and
`flush.ms`."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import pytest
from log.tests.failing_disk import FailingDisk

from odradek_broker.clock import Clock
from odradek_log.disk import RealDisk
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest

MakeBatch = Callable[..., bytes]
SYNC = {"odradek_sync": "always"}


class GatedDisk(RealDisk):
    """Syncs of a topic's log wait at the gate."""

    def __init__(self, topic: str = "t") -> None:
        super().__init__(sync=False)
        self.gate = Event()
        self.gate.set()
        self.begun: list[int] = []
        """The threads of the syncs that began."""
        self._prefix = f"{topic}-"
        self._waited_for: set[int] = set()

    def open(self, path: str, flags: int, /) -> int:
        fd = super().open(path, flags)
        partition, file = path.split("/")[-2:]
        waits = partition.startswith(self._prefix) and file.endswith(".log")
        (self._waited_for.add if waits else self._waited_for.discard)(fd)
        return fd

    def sync(self, fd: int, /) -> None:
        if fd in self._waited_for:
            self.begun.append(get_ident())
            assert self.gate.wait(10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("acks", [1, -1])
async def test_acknowledgements_wait_for_the_disk_and_share_a_sync(
    start_node: Any, connect: Any, make_batch: MakeBatch, acks: int
) -> None:
    disk = GatedDisk()
    node = await start_node(disk=disk, **SYNC)
    clients = [await connect(node) for _ in range(20)]
    await clients[0].create_topic("t")
    disk.begun.clear()
    disk.gate.clear()
    first = asyncio.create_task(clients[0].produce("t", make_batch(b"first"), acks=acks))
    await until(lambda: len(disk.begun) == 1)
    others = [asyncio.create_task(client.produce("t", make_batch(b"v"), acks=acks)) for client in clients[1:]]
    log = node.broker.partitions.get("t", 0).log
    # The event loop serves other requests meanwhile.
    await until(lambda: log.log_end_offset == 20)
    assert not any(task.done() for task in (first, *others))
    disk.gate.set()
    responses = await asyncio.gather(first, *others)
    assert sorted(response.base_offset for response in responses) == list(range(20))
    assert {response.error_code for response in responses} == {ErrorCode.NONE}
    assert len(disk.begun) == 2
    assert get_ident() not in disk.begun
    assert log.recovery_point == 20


async def test_unsynced_records_are_not_visible_to_readers(
    start_node: Any, connect: Any, make_batch: MakeBatch
) -> None:
    disk = GatedDisk()
    node = await start_node(disk=disk, **SYNC)
    client, reader = await connect(node), await connect(node)
    await client.create_topic("t")
    disk.gate.clear()
    producing = asyncio.create_task(client.produce("t", make_batch(b"v")))
    partition = node.broker.partitions.get("t", 0)
    await until(lambda: partition.log.log_end_offset == 1)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0)
    fetch.topics = [FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0, fetch_offset=0)])]
    (found,) = (await reader.ask(fetch, 11)).responses[0].partitions
    assert (found.high_watermark, bytes(found.records or b"")) == (0, b"")
    disk.gate.set()
    await producing
    (found,) = (await reader.ask(fetch, 11)).responses[0].partitions
    assert found.high_watermark == 1
    assert found.records


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_failed_sync_acknowledges_nothing(
    start_node: Any, connect: Any, make_batch: MakeBatch, acks: int, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path)
    node = await start_node(disk=disk, log_dirs=f"{tmp_path}/one,{tmp_path}/two", **SYNC)
    client = await connect(node)
    await client.create_topic("t", partitions=2)
    disk.fail(errno.EIO, lambda name, path, _: name == "sync" and "/two/t-1/" in path)
    response = await client.produce("t", make_batch(b"v"), partition=1, acks=acks)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_records_unsynced_at_a_crash_commit_after_the_next_sync(
    start_node: Any, connect: Any, make_batch: MakeBatch
) -> None:
    disk = GatedDisk()
    node = await start_node(disk=disk, **SYNC)
    client = await connect(node)
    await client.create_topic("t")
    disk.gate.clear()
    producing = asyncio.create_task(client.produce("t", make_batch(b"v")))
    await until(lambda: len(disk.begun) == 1)
    disk.gate.set()
    await node.kill()
    producing.cancel()
    disk.gate.clear()
    again = await start_node(disk=disk, **SYNC)
    partition = again.broker.partitions.get("t", 0)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
    disk.gate.set()
    await until(lambda: partition.high_watermark == 1)


async def test_flush_messages_syncs_before_the_response(start_node: Any, connect: Any, make_batch: MakeBatch) -> None:
    disk = GatedDisk()
    node = await start_node(disk=disk, odradek_sync="true")
    client = await connect(node)
    await client.create_topic("t", flush_messages="3")
    log = node.broker.partitions.get("t", 0).log
    points = []
    for _ in range(7):
        await client.produce("t", make_batch(b"v"))
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]


async def test_flush_ms_syncs_appended_records(start_node: Any, connect: Any, make_batch: MakeBatch) -> None:
    clock = Clock()
    node = await start_node(clock=clock, disk=GatedDisk(), log_flush_scheduler_interval_ms="1000")
    client = await connect(node)
    await client.create_topic("t", flush_ms="60000")
    await client.create_topic("other")  # its `flush.ms` is the scheduler's interval
    log, other = (node.broker.partitions.get(topic, 0).log for topic in ("t", "other"))
    for topic in ("t", "other"):
        await client.produce(topic, make_batch(b"v"))
    node.broker.clock.advance_timeouts(1000)
    clock.advance_wall(59_000)
    node.broker.clock.advance_timeouts(1000)
    await until(lambda: other.recovery_point == 1)
    assert log.recovery_point == 0
    clock.advance_wall(1_000)
    node.broker.clock.advance_timeouts(1000)
    await until(lambda: log.recovery_point == 1)
    await client.produce("t", make_batch(b"v"))
    clock.advance_wall(59_000)
    node.broker.clock.advance_timeouts(1000)
    clock.advance_wall(1_000)
    assert log.recovery_point == 1
    node.broker.clock.advance_timeouts(1000)
    await until(lambda: log.recovery_point == 2)
