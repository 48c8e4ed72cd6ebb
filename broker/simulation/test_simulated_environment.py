"""The simulated loop, network and disks behave as the real ones."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek_broker.clock import Clock
from odradek_log.disk import APPEND, CREATE, Disk, RealDisk
from odradek_log.log_errors import LogDirectoryError
from simulation.memory_disk import MemoryDisk
from simulation.memory_network import HIGH_WATER_BYTES, PIPE_BYTES, MemoryNetwork
from simulation.process import Process
from simulation.trace import Trace
from simulation.virtual_loop import NoProgressError, VirtualLoop


def _loop() -> tuple[VirtualLoop, MemoryNetwork]:
    network = MemoryNetwork(random.Random(1), Trace())
    loop = VirtualLoop(network, random.Random(2))
    network.attach(loop)
    return loop, network


def run(scenario: Callable[[VirtualLoop, MemoryNetwork], Awaitable[None]]) -> float:
    """Run the scenario, and return the virtual seconds that it took."""
    loop, network = _loop()
    try:
        loop.run_until_complete(scenario(loop, network))
        assert loop.failures == []
        return loop.time()
    finally:
        loop.close()


class End(asyncio.Protocol):
    """One end of a connection, which records the bytes and events."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.transport: Any = None
        self.received = b""
        self.happened: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.happened.append("eof")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.happened.append(f"lost {type(error).__name__}")

    def pause_writing(self) -> None:
        self.happened.append("full")

    def resume_writing(self) -> None:
        self.happened.append("room")


async def _pair(loop: VirtualLoop) -> tuple[End, End]:
    accepted: list[End] = []

    def accept() -> End:
        accepted.append(End("b"))
        return accepted[-1]

    await loop.create_server(accept, "b", 1)
    _, near = await loop.create_connection(lambda: End("a"), "b", 1)
    await asyncio.sleep(0)
    return near, accepted[0]


# -- time ----------------------------------------------------------------------------------------------------------


def test_virtual_time_skips_idle_hours() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()

    assert run(lambda *around: asyncio.sleep(0)) == 0
    loop, _ = _loop()
    waited = asyncio.Event()
    with pytest.raises(NoProgressError):
        loop.run_until_complete(waited.wait())
    assert run(scenario) == pytest.approx(3600)


def test_a_task_that_never_waits_is_found() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(NoProgressError, match="time stands still"):
        run(scenario)


def test_executor_work_runs_later_on_the_loop() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        done: list[int] = []
        work = loop.run_in_executor(None, done.append, 1)
        assert done == []
        await work
        assert done == [1]
        with pytest.raises(OSError, match="full"):
            await loop.run_in_executor(None, _full)

    assert run(scenario) > 0


def _full() -> None:
    raise OSError("full")


def test_a_paused_process_runs_its_callbacks_later_in_order() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        process = Process("b", ("b",), Clock(loop.wall_ns, loop.monotonic_ns))
        far = End("b")

        async def serve() -> None:
            await loop.create_server(lambda: far, "b", 1)
            loop.call_later(2, far.happened.append, "timer")

        await process.run(serve())
        _, near = await loop.create_connection(lambda: End("a"), "b", 1)
        near.transport.write(b"before ")
        await asyncio.sleep(1)
        loop.pause_process(process)
        near.transport.write(b"meanwhile")
        near.transport.close()
        await asyncio.sleep(5)
        assert (far.received, far.happened) == (b"before ", [])
        loop.resume_process(process)
        await asyncio.sleep(0.01)
        assert (far.received, far.happened) == (b"before meanwhile", ["eof", "timer", "lost NoneType"])

    run(scenario)


# -- connections ---------------------------------------------------------------------------------------------------


def test_bytes_arrive_in_order_before_the_end_of_the_stream() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        sent = [bytes([at]) * at for at in range(1, 200)]
        for piece in sent:
            near.transport.write(piece)
        near.transport.close()
        await asyncio.sleep(1)
        assert far.received == b"".join(sent)
        assert (near.happened, far.happened) == (["lost NoneType"], ["eof", "lost NoneType"])

    run(scenario)


def test_an_abort_resets_the_connection_of_the_peer() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        near.transport.abort()
        await asyncio.sleep(1)
        assert (near.happened, far.happened) == (["lost NoneType"], ["lost ConnectionResetError"])

    run(scenario)


def test_a_paused_reader_pauses_the_writer() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        far.transport.pause_reading()
        size = PIPE_BYTES + 2 * HIGH_WATER_BYTES
        near.transport.write(bytes(size))
        await asyncio.sleep(1)
        assert (near.happened, far.received) == (["full"], b"")
        assert near.transport.get_write_buffer_size() == size - PIPE_BYTES
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert (near.happened, len(far.received)) == (["full", "room"], size)

    run(scenario)


def test_a_port_without_a_server_refuses_connections() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(lambda: End("a"), "b", 1)

    run(scenario)


# -- faults of the network -------------------------------------------------------------------------------------------


def test_a_one_way_partition_delays_that_direction_only() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        network.block([("a", "b")])
        near.transport.write(b"there")
        far.transport.write(b"back")
        await asyncio.sleep(10)
        assert (near.received, far.received) == (b"back", b"")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await loop.create_connection(lambda: End("a"), "b", 1)
        network.unblock([("a", "b")])
        await asyncio.sleep(1)
        assert far.received == b"there"

    run(scenario)


def test_a_host_that_lost_power_resets_old_connections_later() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        network.power_off("b")
        far.transport.abort()
        near.transport.write(b"are you there?")
        await asyncio.sleep(60)
        assert near.happened == []
        network.power_on("b")
        await asyncio.sleep(1)
        assert near.happened == ["lost ConnectionResetError"]

    run(scenario)


def test_reset_connections_breaks_both_ends() -> None:
    async def scenario(loop: VirtualLoop, network: MemoryNetwork) -> None:
        near, far = await _pair(loop)
        assert network.reset_connections("b", "a") == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert near.happened == far.happened == ["lost ConnectionResetError"]

    run(scenario)


# -- disks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "real"])
def disk_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = MemoryDisk(random.Random(1))
    disk.make_directories("/host")
    return disk, "/host"


def test_the_memory_disk_behaves_as_the_real_disk(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    disk.make_directories(f"{root}/a/b")
    disk.make_directories(f"{root}/a/b")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{root}/a")
    path = f"{root}/a/b/file"
    with pytest.raises(FileNotFoundError):
        disk.open(path, APPEND)
    fd = disk.open(path, CREATE)
    assert disk.write(fd, b"0123456789") == 10
    assert (disk.pread(fd, 4, 2), disk.pread(fd, 4, 8), disk.size(path)) == (b"2345", b"89", 10)
    disk.truncate(fd, 4)
    disk.write(fd, memoryview(b"x"))
    disk.sync(fd)
    disk.rename(f"{root}/a/b", f"{root}/c")
    assert disk.read_file(f"{root}/c/file") == disk.pread(fd, 100, 0) == b"0123x"
    disk.remove(f"{root}/c/file")
    assert disk.pread(fd, 1, 4) == b"x"
    disk.close(fd)
    disk.write_file(f"{root}/c/one", b"long")
    disk.write_file(f"{root}/c/one", b"1")
    disk.replace_file(f"{root}/c/two", b"22")
    disk.replace_file(f"{root}/c/two", b"2", sync=False)
    disk.sync_file(f"{root}/c/two")
    disk.sync_directory(f"{root}/c")
    assert {name: disk.read_file(f"{root}/c/{name}") for name in disk.names(f"{root}/c")} == {"one": b"1", "two": b"2"}
    assert (disk.is_directory(f"{root}/c"), disk.is_directory(f"{root}/c/one")) == (True, False)
    disk.remove_tree(f"{root}/c")
    assert (disk.exists(f"{root}/c"), disk.exists(f"{root}/a")) == (False, True)
    for missing in (disk.remove, disk.size, disk.read_file, disk.remove_tree, disk.names):
        with pytest.raises(FileNotFoundError):
            missing(f"{root}/c")
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(LogDirectoryError):
        disk.lock(f"{root}/.lock")
    lock.release()
    disk.lock(f"{root}/.lock").release()


@pytest.mark.parametrize("seed", range(30))
def test_a_power_loss_keeps_synced_bytes_and_a_prefix_of_the_rest(seed: int) -> None:
    disk = MemoryDisk(random.Random(seed))
    disk.make_directories("/host")
    fd = disk.open("/host/0.log", os.O_CREAT)
    disk.write(fd, b"synced")
    disk.sync(fd)
    disk.write(fd, b"and not")
    disk.write_file("/host/never", b"never")
    disk.lose_power("host")
    left = disk.read_file("/host/0.log")
    assert left.startswith(b"synced")
    assert b"syncedand not".startswith(left)
    assert b"never".startswith(disk.read_file("/host/never"))
    assert disk.lose_power("host") == 0


def test_a_truncation_may_be_lost_until_the_next_sync() -> None:
    left = set()
    for seed in range(20):
        for synced in (False, True):
            disk = MemoryDisk(random.Random(seed))
            disk.make_directories("/host")
            fd = disk.open("/host/0.log", os.O_CREAT)
            disk.write(fd, b"0123456789")
            disk.sync(fd)
            disk.truncate(fd, 5)
            if synced:
                disk.replace_file("/host/other", b"")
            disk.lose_power("host")
            left.add((synced, disk.read_file("/host/0.log")))
    assert left == {(False, b"0123456789"), (False, b"01234"), (True, b"01234")}


def test_a_full_directory_fails_writes_and_a_broken_one_all_calls() -> None:
    disk = MemoryDisk(random.Random(1))
    disk.make_directories("/host/data")
    disk.make_directories("/host/more")
    fd = disk.open("/host/data/0.log", os.O_CREAT)
    disk.write(fd, b"before")
    disk.fail("/host/data", errno.ENOSPC, calls=2)
    disk.sync(fd)
    disk.write_file("/host/data/one", b"1")
    with pytest.raises(OSError, match="No space left"):
        disk.sync(fd)
    with pytest.raises(OSError, match="No space left"):
        disk.write_file("/host/data/two", b"2")
    assert disk.pread(fd, 6, 0) == b"before"
    disk.heal("/host/data")
    disk.fail("/host/data", errno.EIO, calls=0)
    with pytest.raises(OSError, match="Input/output"):
        disk.pread(fd, 6, 0)
    with pytest.raises(OSError, match="Input/output"):
        disk.size("/host/data/one")
    disk.write_file("/host/more/three", b"3")
    disk.heal("/host/data")
    assert disk.read_file("/host/data/0.log") == b"before"
