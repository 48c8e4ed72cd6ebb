"""A disk that fails under a running node: its directory goes offline, waiting requests get an error, decisions of the
controller hold. And no sync runs on the event loop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from broker.tests.alone import Node
from log.tests.failing_disk import FailingDisk

from odradek_log.disk import RealDisk
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.uuid import Uuid

MakeBatch = Callable[..., bytes]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_failed_background_flush_completes_waiting_requests(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path)
    directories = f"{tmp_path}/one,{tmp_path}/two"
    node = await start_node(disk=disk, log_flush_scheduler_interval_ms="1000", log_dirs=directories)
    client, waiting = await connect(node), await connect(node)
    await client.create_topic("t", partitions=2, flush_ms="1")
    assert (await client.produce("t", make_batch(b"v"), partition=1)).error_code == ErrorCode.NONE
    wait = asyncio.create_task(
        waiting.ask(
            FetchRequest(
                max_wait_ms=30_000,
                min_bytes=1,
                topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(1, fetch_offset=1)])],
            ),
            11,
        )
    )
    await until(lambda: len(node.broker.purgatory) == 1)
    replicated = node.broker.partitions.get("t", 1).wait_for_high_watermark(2, 30_000)
    disk.fail(errno.EIO, lambda name, path, _: name == "sync" and "/two/t-1/" in path)
    node.broker.clock.advance_timeouts(1000)
    assert (await wait).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await replicated == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.broker.partitions.get("t", 1).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.NONE


async def test_a_stray_log_that_cannot_be_renamed_blocks_only_its_name(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    node = await start_node()
    await (await connect(node)).create_topic("t")
    directory = node.broker.log_directories.all[0]
    for topic_id, name in ((Uuid(b"s" * 16), "stray"), (None, "unclaimed")):
        directory.create_log(name, 0, topic_id, node.broker.partitions.get("t", 0).log.config)
    await node.stop()
    disk = FailingDisk(tmp_path)
    disk.fail(errno.EACCES, lambda name, path, _: name == "rename" and path.endswith(("/stray-0", "/unclaimed-0")))
    node = await start_node(disk=disk)
    client = await connect(node)
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.NONE
    for name in ("stray", "unclaimed"):
        await client.create_topic(name)
        assert (await client.produce(name, make_batch(b"v"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    topics = [DeleteTopicsRequest.DeleteTopicState("stray"), DeleteTopicsRequest.DeleteTopicState("unclaimed")]
    deleted = await client.ask(DeleteTopicsRequest(topics, timeout_ms=1000), 6)
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE] * 2
    for name in ("stray", "unclaimed"):
        await client.create_topic(name)
        assert (await client.produce(name, make_batch(b"v"))).base_offset == 0
        assert len(list((tmp_path / "data").glob(f"{name}-0.*-stray"))) == 1


async def test_the_name_of_a_deleted_log_is_free_after_its_removal(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path)
    node = await start_node(disk=disk)
    client = await connect(node)
    await client.create_topic("t")
    await client.produce("t", make_batch(b"old"))
    disk.fail(errno.EACCES, lambda name, path, _: name == "rename" and path.endswith("/t-0"))
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=1000)
    assert (await client.ask(request, 6)).responses[0].error_code == ErrorCode.NONE
    disk.heal()
    await client.create_topic("t")
    assert (await client.produce("t", make_batch(b"new"))).base_offset == 0


async def test_a_topic_id_that_cannot_be_written_takes_its_directory_offline(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    directories = f"{tmp_path}/one,{tmp_path}/two"
    node = await start_node(log_dirs=directories)
    await (await connect(node)).create_topic("t", partitions=2)
    two = next(index for index in (0, 1) if node.broker.partitions.get("t", index).directory.path.endswith("two"))
    await node.stop()
    (tmp_path / "two" / f"t-{two}" / "partition.metadata").unlink()
    disk = FailingDisk(tmp_path)
    disk.fail(errno.ENOSPC, lambda name, path, _: name == "replace_file" and "/two/" in path)
    node = await start_node(disk=disk, log_dirs=directories)
    client = await connect(node)
    response = await client.produce("t", make_batch(b"v"), partition=two)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", make_batch(b"v"), partition=1 - two)).error_code == ErrorCode.NONE


async def test_new_logs_are_created_in_healthy_directories(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path)
    node = await start_node(disk=disk, log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    client = await connect(node)
    disk.fail(errno.EROFS, lambda name, path, _: name == "make_directory" and "/two/" in path)
    await client.create_topic("t", partitions=3)
    for index in range(3):
        assert (await client.produce("t", make_batch(b"v"), partition=index)).error_code == ErrorCode.NONE
    assert [each.offline for each in node.broker.log_directories.all] == [False, True]


class WatchedDisk(RealDisk):
    """Records the synced files and the threads of the syncs."""

    def __init__(self) -> None:
        super().__init__(sync=False)
        self.forced: list[tuple[str, int]] = []
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int, /) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int, /) -> None:
        self.forced.append((Path(self._paths.get(fd, "")).name, get_ident()))

    def sync_file(self, path: str, /) -> None:
        self.forced.append((Path(path).name, get_ident()))

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        super().replace_file(path, data, sync=False)
        if sync:
            self.forced.append((Path(path).name, get_ident()))


async def test_no_sync_runs_on_the_event_loop(start_node: Any, connect: Any, make_batch: MakeBatch) -> None:
    disk = WatchedDisk()
    node: Node = await start_node(disk=disk)
    client = await connect(node)
    await client.create_topic("t", segment_bytes="1048576")
    disk.forced.clear()
    for _ in range(4):
        await client.produce("t", make_batch(b"v" * 600_000))
    assert get_ident() not in {thread for _, thread in disk.forced}
    node.broker.clock.advance_timeouts(60_000)
    wanted = {
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "00000000000000000001.snapshot",
        "00000000000000000000.log",
    }
    await until(lambda: wanted <= {name for name, _ in disk.forced})
    assert get_ident() not in {thread for _, thread in disk.forced}


async def test_no_sync_runs_on_the_event_loop_at_shutdown(start_node: Any, connect: Any, make_batch: MakeBatch) -> None:
    disk = WatchedDisk()
    node: Node = await start_node(disk=disk)
    client = await connect(node)
    await client.create_topic("t")
    await client.produce("t", make_batch(b"v"))
    disk.forced.clear()
    (broker,) = node.cluster.nodes
    await node.cluster.stop_broker(broker)
    wanted = {"00000000000000000000.log", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"}
    assert wanted <= {name for name, _ in disk.forced}
    assert get_ident() not in {thread for name, thread in disk.forced if name in wanted}


async def test_a_broker_ends_when_all_directories_have_failed(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path)
    node = await start_node(disk=disk, log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    client = await connect(node)
    await client.create_topic("t", partitions=2)
    two = next(index for index in (0, 1) if node.broker.partitions.get("t", index).directory.path.endswith("two"))
    disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/two/" in path)
    response = await client.produce("t", make_batch(b"v"), partition=two)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    described = await client.ask(DescribeLogDirsRequest(None), 4)
    assert {Path(each.log_dir).name: each.error_code for each in described.results} == {
        "one": ErrorCode.NONE,
        "two": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert not node.cluster.ended.is_set()
    # The deletion does not use the failed disk.
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=1000)
    assert (await client.ask(request, 6)).responses[0].error_code == ErrorCode.NONE
    await client.create_topic("t", partitions=2)
    for index in (0, 1):
        assert (await client.produce("t", make_batch(b"v"), partition=index)).base_offset == 0
    disk.fail(errno.EIO, lambda name, path, _: name == "write" and "/one/t-" in path)
    failing = asyncio.ensure_future(client.produce("t", make_batch(b"v")))
    await asyncio.wait_for(node.cluster.ended.wait(), 10)
    await asyncio.gather(failing, return_exceptions=True)
    assert not node.cluster.nodes
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await connect(node)


async def test_a_stopped_broker_reports_no_replicas(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    await (await connect(node)).create_topic("t")
    asked: list[object] = []

    async def submit(request: object, principal: object = None) -> None:
        asked.append(request)

    await node.broker.stop_replication()
    monkeypatch.setattr(node.broker.controller_channel, "submit", submit)
    # Its disk fails while it closes its logs.
    node.broker.assignments_manager.report([node.broker.partitions.get("t", 0)])
    await asyncio.sleep(0)  # a task would have sent its request by now
    assert asked == []
