"""Sealed segments are flushed soon after the roll, and recovery after a crash reads the last segment of a log."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from broker.tests.alone import Node
from broker.tests.manual_clock import ManualClock
from log.tests.failing_disk import FailingDisk

from odradek_broker.replication.sealed_segments import CHECKPOINT_DELAY_MS
from odradek_log.checkpoints import read_offsets
from odradek_log.disk import RealDisk
from odradek_log.log import Log
from odradek_wire.errors import ErrorCode
from odradek_wire.records.batch import HEADER_SIZE

NO_TURN = {"log_flush_offset_checkpoint_interval_ms": str(1 << 62)}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class WatchedDisk(RealDisk):
    """Counts the bytes read of each file, and holds syncs of log files at a gate."""

    def __init__(self) -> None:
        super().__init__(sync=False)
        self.read_bytes: Counter[str] = Counter()
        self.gate = Event()
        self.gate.set()
        self.syncing: list[str] = []
        """The log files whose syncs began."""
        self._names: dict[int, str] = {}
        read = self.pread

        def pread(fd: int, size: int, position: int) -> bytes:
            data = read(fd, size, position)
            self.read_bytes[self._names.get(fd, "")] += len(data)
            return data

        self.pread = pread  # type: ignore[method-assign]

    def open(self, path: str, flags: int, /) -> int:
        fd = super().open(path, flags)
        self._names[fd] = "/".join(Path(path).parts[-2:])
        return fd

    def sync(self, fd: int, /) -> None:
        self._wait(self._names.get(fd, ""))

    def sync_file(self, path: str, /) -> None:
        self._wait("/".join(Path(path).parts[-2:]))

    def _wait(self, name: str) -> None:
        if name.endswith(".log") and name.startswith("t-"):
            self.syncing.append(name)
            assert self.gate.wait(10)


def log_of(node: Node, index: int = 0) -> Log:
    return node.broker.partitions.get("t", index).log  # type: ignore[union-attr]


async def produce(client: Any, node: Node, make_batch: Any, index: int = 0) -> None:
    records = make_batch(os.urandom(300), timestamp=node.broker.clock.wall_ms())
    assert (await client.produce("t", records, partition=index)).error_code == ErrorCode.NONE


async def roll(client: Any, node: Node, make_batch: Any, times: int, index: int = 0) -> None:
    """Add `times` sealed segments and a record in the active one."""
    for _ in range(times):
        for _ in range(3):
            await produce(client, node, make_batch, index)
        log_of(node, index).roll()
    await produce(client, node, make_batch, index)


def written(data: Path) -> int:
    """Return the checkpointed recovery point of t-0."""
    return read_offsets(RealDisk(), str(data / "recovery-point-offset-checkpoint")).get(("t", 0), 0)


async def until_written(clock: ManualClock, data: Path, offset: int) -> None:
    """Advance the clock until the checkpoint has the offset."""
    async with asyncio.timeout(10):
        while written(data) != offset:
            clock.advance_timeouts(CHECKPOINT_DELAY_MS)
            await asyncio.sleep(0.001)


async def test_a_start_after_a_crash_reads_the_last_segment_only(
    start_node: Any, connect: Any, make_batch: Any, tmp_path: Path
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, disk=WatchedDisk(), **NO_TURN)
    client = await connect(node)
    await client.create_topic("t")
    await roll(client, node, make_batch, 8)
    log = log_of(node)
    base, end = log.segments.active.base_offset, log.log_end_offset
    await until(lambda: log.recovery_point == base)
    assert written(tmp_path / "data") == 0
    await until_written(clock, tmp_path / "data", base)
    last = f"t-0/{base:020d}.log"
    size = log.segments.active.size
    await node.kill()
    disk = WatchedDisk()
    node = await start_node(disk=disk)
    read = {name: count for name, count in disk.read_bytes.items() if name.startswith("t-0/")}
    # Once for the records, once for the producers.
    assert set(read) == {last}
    assert size <= read[last] <= 2 * size + HEADER_SIZE
    assert log_of(node).log_end_offset == end


async def test_segments_unflushed_at_a_crash_are_flushed_after_the_start(
    start_node: Any, connect: Any, make_batch: Any, tmp_path: Path
) -> None:
    node = await start_node(clock=ManualClock())
    client = await connect(node)
    await client.create_topic("t")
    await roll(client, node, make_batch, 3)
    await node.kill()
    assert written(tmp_path / "data") == 0
    clock = ManualClock()
    node = await start_node(clock=clock, **NO_TURN)
    log = log_of(node)
    await until(lambda: log.recovery_point == log.segments.active.base_offset > 0)
    await until_written(clock, tmp_path / "data", log.recovery_point)


async def test_checkpoints_follow_the_clock_of_timeouts(
    start_node: Any, connect: Any, make_batch: Any, tmp_path: Path
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, log_flush_offset_checkpoint_interval_ms="60000")
    client = await connect(node)
    await client.create_topic("t")
    await produce(client, node, make_batch)
    await produce(client, node, make_batch)
    log_of(node).flush()
    clock.advance_timeouts(59_999)
    await asyncio.sleep(0)
    assert written(tmp_path / "data") == 0
    clock.advance_timeouts(1)
    await until(lambda: written(tmp_path / "data") == 1)


async def test_one_log_of_a_directory_is_flushed_at_a_time(start_node: Any, connect: Any, make_batch: Any) -> None:
    disk = WatchedDisk()
    node = await start_node(disk=disk)
    client = await connect(node)
    await client.create_topic("t", partitions=3)
    disk.gate.clear()
    for index in range(3):
        await roll(client, node, make_batch, 2, index)
    await until(lambda: bool(disk.syncing))
    await produce(client, node, make_batch)
    assert disk.syncing == [f"t-0/{0:020d}.log"]
    assert [log_of(node, index).recovery_point for index in range(3)] == [0, 0, 0]
    disk.gate.set()
    await until(lambda: not any(log_of(node, index).has_unflushed_sealed for index in range(3)))
    names = [name.partition("/")[0] for name in disk.syncing]
    assert names == sorted(names)


async def test_a_failed_flush_leaves_the_recovery_point(
    start_node: Any, connect: Any, make_batch: Any, tmp_path: Path
) -> None:
    clock = ManualClock()
    disk = FailingDisk(tmp_path)
    node = await start_node(clock=clock, disk=disk, log_dirs=f"{tmp_path}/data,{tmp_path}/other")
    client = await connect(node)
    await client.create_topic("t")
    log = log_of(node)
    data = Path(log.directory).parent
    await roll(client, node, make_batch, 1)
    base = log.segments.active.base_offset
    await until(lambda: log.recovery_point == base)
    await until_written(clock, data, base)
    disk.fail(errno.EIO, lambda name, path, _: name in ("sync", "sync_file") and "t-0/" in path)
    await produce(client, node, make_batch)
    log.roll()
    await until(lambda: log.offline_cause is not None)
    await until(lambda: [each.offline for each in node.broker.log_directories.all].count(True) == 1)
    clock.advance_timeouts(60_000)
    assert log.recovery_point == base
    await node.kill()
    assert written(data) == base


async def test_a_broker_that_ends_during_a_flush_begins_no_other(
    start_node: Any, connect: Any, make_batch: Any, tmp_path: Path
) -> None:
    disk = WatchedDisk()
    node = await start_node(disk=disk)
    client = await connect(node)
    await client.create_topic("t", partitions=2)
    disk.gate.clear()
    for index in range(2):
        await roll(client, node, make_batch, 1, index)
    await until(lambda: bool(disk.syncing))
    end = asyncio.create_task(node.kill())
    await until(lambda: node.broker.executor.stopped)
    disk.gate.set()
    await end
    assert disk.syncing == [f"t-0/{0:020d}.log"]
    assert not (tmp_path / "data" / "recovery-point-offset-checkpoint").exists()
