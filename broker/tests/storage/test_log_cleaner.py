"""The log cleaner in a running broker: its times, its limits, and events during a pass."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest
from broker.tests.alone import Node
from broker.tests.compacted_topics import COMPACT, fill, log_of
from broker.tests.manual_clock import ManualClock
from broker.tests.three_brokers import Trio
from log.tests.cleaner_kit import keyed, left
from log.tests.failing_disk import FailingDisk

from odradek_broker.clock import Clock
from odradek_broker.metrics import collect, render
from odradek_broker.storage import log_manager
from odradek_broker.storage.cleaner_throttle import CleanerThrottle
from odradek_broker.timers import Timers
from odradek_log.cleaner.offset_map import BYTES_PER_ENTRY
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from odradek_broker.storage.log_cleaner import LogCleaner


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_compacted_topic_rejects_records_without_a_key(client: Any, make_batch: Any) -> None:
    await client.create_topic("t", **COMPACT)
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.INVALID_RECORD


async def test_the_cleaner_runs_after_its_backoff(start_node: Any, connect: Any, tmp_path: Path) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, log_cleaner_backoff_ms="15000")
    client = await connect(node)
    await client.create_topic("t", **COMPACT)
    for round_ in (1, 2):
        await fill(client, node)
        clock.advance_timeouts(15_000)
        await until(lambda end=10 * round_: log_of(node).cleaner.checkpoint == end)  # type: ignore[misc]
        assert [offset for offset, _, _ in left(log_of(node))] == [10 * round_ - 2, 10 * round_ - 1]
    await until(lambda: (tmp_path / "data" / "cleaner-offset-checkpoint").read_bytes() == b"0\n1\nt 0 20\n")


async def test_clean_logs_cleans_all_dirty_logs_now(start_node: Any, connect: Any) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    client = await connect(node)
    for name in ("one", "two"):
        await client.create_topic(name, **COMPACT)
        await fill(client, node, name)
    await client.create_topic("late", **COMPACT, min_compaction_lag_ms="60000")
    await fill(client, node, "late")
    await client.create_topic("clean", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    await fill(client, node, "clean")
    await client.create_topic("kept")
    await fill(client, node, "kept")
    sizes = []
    for _ in range(2):
        await node.cluster.clean_logs()
        sizes.append({name: len(left(log_of(node, name))) for name in ("one", "two", "late", "clean", "kept")})
        clock.advance_wall(60_002)
    assert sizes == [
        {"one": 2, "two": 2, "late": 10, "clean": 10, "kept": 10},
        {"one": 2, "two": 2, "late": 2, "clean": 10, "kept": 10},
    ]


async def test_a_disabled_cleaner_cleans_nothing(start_node: Any, connect: Any) -> None:
    node = await start_node(log_cleaner_enable="false")
    client = await connect(node)
    await client.create_topic("t", **COMPACT)
    await fill(client, node)
    await node.cluster.clean_logs()
    assert len(left(log_of(node))) == 10


async def test_both_cleanup_policies_compact_and_delete(start_node: Any, connect: Any) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    client = await connect(node)
    await client.create_topic("t", **{**COMPACT, "cleanup_policy": "compact,delete"}, retention_ms="60000")
    await fill(client, node)
    await node.cluster.clean_logs()
    assert len(left(log_of(node))) == 2
    assert log_of(node).log_start_offset == 0
    clock.advance_wall(60_002)
    node.cluster.delete_old_segments()
    assert (left(log_of(node)), log_of(node).log_start_offset) == ([], 10)


async def test_the_cleaner_stops_at_an_open_transaction(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create_topic("t", **COMPACT)
    await fill(client, node)
    partition = node.broker.partitions.get("t", 0)
    log = partition.log
    log.append(keyed((b"a", b"undecided"), producer=(9, 0, 0), transactional=True), partition.leader_epoch)
    partition.leader.log_end_offset = partition.leader.high_watermark = partition.high_watermark = log.log_end_offset
    log.roll()
    await node.cluster.clean_logs()
    assert log.cleaner.checkpoint == 10
    assert [value for _, _, value in left(log)] == [b"4", b"4", b"undecided"]
    partition.end_transaction(TransactionMarker(9, 0, 0, False, 1))
    log.roll()
    await node.cluster.clean_logs()
    assert log.cleaner.checkpoint == 12
    assert [value for _, key, value in left(log) if key in (b"a", b"b")] == [b"4", b"4"]


async def test_consumer_offsets_are_compacted_and_loaded(start_node: Any, connect: Any) -> None:
    node = await start_node(offsets_topic_num_partitions="1")
    client = await connect(node)
    await client.create_topic("t")

    def commit(offset: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)
        return OffsetCommitRequest(
            "g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])]
        )

    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    async with asyncio.timeout(10):
        while error:
            await client.ask(FindCoordinatorRequest("g"), 2)
            error = (await client.ask(commit(0), 8)).topics[0].partitions[0].error_code
    for offset in range(1, 30):
        assert (await client.ask(commit(offset), 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
    log = log_of(node, "__consumer_offsets")
    log.roll()
    await node.cluster.clean_logs()
    assert len(left(log)) == 1
    await node.kill()
    node = await start_node(offsets_topic_num_partitions="1")
    client = await connect(node)
    topic = OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with asyncio.timeout(10):
        while error:
            response = await client.ask(OffsetFetchRequest("g", [topic]), 5)
            error = response.error_code
    assert response.topics[0].partitions[0].committed_offset == 29


async def test_a_throttled_pass_ends_when_the_topic_is_deleted(start_node: Any, connect: Any) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, log_cleaner_io_max_bytes_per_second="1000")
    client = await connect(node)
    for name in ("t", "u"):
        await client.create_topic(name, **COMPACT)
        await fill(client, node, name)
    run = asyncio.create_task(node.cluster.clean_logs())
    await until(lambda: log_of(node).cleaner.in_progress or log_of(node, "u").cleaner.in_progress)
    first, second = ("t", "u") if log_of(node).cleaner.in_progress else ("u", "t")
    log = log_of(node, first)
    await client.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(first)], timeout_ms=1000), 6)
    other = log_of(node, second)
    while other.cleaner.checkpoint is None:
        clock.advance_timeouts(100)
        await asyncio.sleep(0)
    await run
    assert log.cleaner.checkpoint is None
    assert len(left(other)) == 2
    assert clock.monotonic_ms() > 2 * sum(len(batch) for batch in [keyed((b"a", b"1"), (b"b", b"1"))] * 5)


@pytest.mark.parametrize("threads", [1, 2, 3])
async def test_one_log_per_cleaner_thread_is_compacted_at_a_time(start_node: Any, connect: Any, threads: int) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, log_cleaner_threads=str(threads), log_cleaner_io_max_bytes_per_second="1000")
    client = await connect(node)
    names = ["t", "u", "v", "w"]
    for name in names:
        await client.create_topic(name, **COMPACT)
        await fill(client, node, name)
    logs = [log_of(node, name) for name in names]
    run = asyncio.create_task(node.cluster.clean_logs())
    counts = set()

    def cleanings_in_progress() -> int:
        counts.add(count := sum(log.cleaner.in_progress for log in logs))
        return count

    await until(lambda: cleanings_in_progress() == threads)
    while not run.done():
        clock.advance_timeouts(10)
        cleanings_in_progress()
        await asyncio.sleep(0)
    await run
    assert max(counts) == threads
    assert [len(left(log)) for log in logs] == [2] * len(logs)


async def test_all_passes_share_the_throttle() -> None:
    clock = ManualClock()
    throttle = CleanerThrottle(Timers(clock, asyncio.get_running_loop()))
    passes = [asyncio.create_task(throttle.record(1000, 1000.0)) for _ in range(2)]
    done = []
    for _ in range(4):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append([each.done() for each in passes])
        clock.advance_timeouts(999 if len(done) == 2 else 1000 if len(done) == 1 else 1)
    assert done == [[False, False], [True, False], [True, False], [True, True]]
    # Unused rate does not accumulate.
    clock.advance_timeouts(60_000)
    late = asyncio.create_task(throttle.record(1000, 1000.0))
    await asyncio.sleep(0)
    clock.advance_timeouts(999)
    await asyncio.sleep(0)
    assert not late.done()
    throttle.stop()
    await late


async def test_threads_share_the_dedupe_buffer(start_node: Any, connect: Any) -> None:
    used = []
    for threads in (1, 2):
        node = await start_node(
            data=f"data-{threads}",
            log_cleaner_threads=str(threads),
            log_cleaner_dedupe_buffer_size=str(1000 * BYTES_PER_ENTRY),
            log_cleaner_io_buffer_load_factor="1",
        )
        client = await connect(node)
        await client.create_topic("t", **COMPACT)
        await fill(client, node)
        await node.cluster.clean_logs()
        used.append(node.log_manager.cleaner.last_pass.buffer_utilization)
    assert used == [2 / 1000, 2 / 500]


async def test_added_cleaner_threads_work_immediately(start_node: Any, connect: Any) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, log_cleaner_backoff_ms="1000", log_cleaner_io_max_bytes_per_second="1")
    client = await connect(node)
    for name in ("t", "u"):
        await client.create_topic(name, **COMPACT)
        await fill(client, node, name)
    logs = [log_of(node, name) for name in ("t", "u")]
    clock.advance_timeouts(1000)
    await until(lambda: sum(log.cleaner.in_progress for log in logs) == 1)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    setting = IncrementalAlterConfigsRequest.AlterableConfig("log.cleaner.threads", 0, "2")
    response = await client.ask(IncrementalAlterConfigsRequest([resource(4, "", [setting])]), 1)
    assert response.responses[0].error_code == ErrorCode.NONE
    clock.advance_timeouts(1000)
    await until(lambda: sum(log.cleaner.in_progress for log in logs) == 2)


async def test_the_cleaner_is_imported_on_a_worker_thread(start_node: Any, connect: Any, monkeypatch: Any) -> None:
    threads: list[int] = []
    load = log_manager.import_cleaner

    def watched() -> type[LogCleaner]:
        threads.append(get_ident())
        return load()

    monkeypatch.setattr(log_manager, "import_cleaner", watched)
    clock = ManualClock()
    node = await start_node(clock=clock, log_cleaner_backoff_ms="1000")
    client = await connect(node)
    clock.advance_timeouts(1000)
    await client.create_topic("t", **COMPACT)
    await fill(client, node)
    assert threads == []
    clock.advance_timeouts(1000)
    await until(lambda: len(left(log_of(node))) == 2)
    assert threads[0] != get_ident()


async def test_a_broker_ends_in_the_middle_of_a_pass(start_node: Any, connect: Any, tmp_path: Path) -> None:
    for end in (Node.stop, Node.kill):
        node = await start_node(clock=ManualClock(), data=end.__name__, log_cleaner_io_max_bytes_per_second="1")
        client = await connect(node)
        await client.create_topic("t", **COMPACT)
        await fill(client, node)
        run = asyncio.create_task(node.cluster.clean_logs())
        log = log_of(node)
        await until(lambda log=log: log.cleaner.in_progress)  # type: ignore[misc]
        async with asyncio.timeout(10):
            await end(node)
            await run
        node = await start_node(data=end.__name__)
        await node.cluster.clean_logs()
        assert len(left(log_of(node))) == 2
        await node.stop()


async def test_a_corrupt_log_is_served_and_not_cleaned(start_node: Any, connect: Any, tmp_path: Path) -> None:
    node = await start_node()
    client = await connect(node)
    for name in ("t", "u"):
        await client.create_topic(name, **COMPACT)
        await fill(client, node, name)
    file = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[70] ^= 1
    file.write_bytes(content)
    await node.cluster.clean_logs()
    assert "wrong CRC" in str(log_of(node).cleaner.uncleanable_error)
    assert len(left(log_of(node, "u"))) == 2
    assert (await client.produce("t", bytes(keyed((b"a", b"v"))))).error_code == ErrorCode.NONE
    assert not list((tmp_path / "data" / "t-0").glob("*.cleaned"))
    metrics = render(collect(node.broker, node.server, node.log_manager.cleaner, 0.0)).splitlines()
    assert f'kafka_log_LogCleanerManager_uncleanable_partitions_count{{logDirectory="{tmp_path}/data"}} 1' in metrics
    assert "kafka_log_LogCleaner_cleaner_recopy_percent 20" in metrics


@pytest.mark.parametrize("call", ["write", "rename", "replace_file"])
async def test_a_failing_disk_during_a_pass_takes_its_directory_offline(
    start_node: Any, connect: Any, tmp_path: Path, call: str
) -> None:
    disk = FailingDisk(tmp_path)
    node = await start_node(disk=disk, log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    client = await connect(node)
    await client.create_topic("t", 2, **COMPACT)
    index = next(i for i in (0, 1) if (tmp_path / "two" / f"t-{i}").exists())
    for at in range(5):
        for each in (0, 1):
            records = bytes(keyed((b"a", b"%d" % at)))
            assert (await client.produce("t", records, partition=each)).error_code == ErrorCode.NONE
    for each in (0, 1):
        log_of(node, index=each).roll()
    disk.fail(
        errno.EIO,
        lambda name, path, _: name == call and "/two/" in path and ("clean" in path or ".swap" in path),
    )
    await node.cluster.clean_logs()
    await until(lambda: [each.offline for each in node.broker.log_directories.all] == [False, True])
    response = await client.produce("t", bytes(keyed((b"a", b"v"))), partition=index)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(left(log_of(node, index=1 - index))) == 1


async def test_a_follower_copies_compacted_records_and_cleans_its_log(tmp_path: Path, connect: Any) -> None:
    trio = Trio(tmp_path, connect)
    await trio.start()
    try:
        await trio.create([1, 2], **COMPACT)
        client = await trio.client(1)

        async def produce(count: int) -> None:
            for at in range(count):
                records = bytes(keyed((b"a", b"%d" % at), (b"b %d" % at, b"%d" % at)))
                assert (await client.produce("t", records)).error_code == ErrorCode.NONE

        await produce(5)
        await trio.cluster.kill_broker(2)
        await produce(5)
        trio.hosted(1).log.roll()
        await trio.cluster.clean_logs()
        await trio.cluster.start_broker(trio.static(2))
        await trio.until_in_sync(1, 2)
        leader, follower = trio.hosted(1).log, trio.hosted(2).log
        assert [offset for offset, _, _ in left(leader)] == [11, 13, 15, 17, 18, 19]
        # The follower has not cleaned the records that it copied before.
        assert [offset for offset, _, _ in left(follower)] == [*range(10), 11, 13, 15, 17, 18, 19]
        follower.roll()
        await trio.cluster.clean_logs()
        assert left(follower) == left(leader)
        assert (await client.produce("t", bytes(keyed((b"c", b"next"))))).base_offset == 20
        await trio.until(lambda: left(follower) == left(leader))
        assert follower.log_end_offset == 21
    finally:
        await trio.cluster.stop(grace_ms=100)


async def test_produce_and_fetch_continue_during_a_pass(start_node: Any, connect: Any) -> None:
    node = await start_node(clock=Clock())
    client, other = await connect(node), await connect(node)
    await client.create_topic("t", **COMPACT)
    for _ in range(20):
        records = keyed(*((b"%d" % (at % 700), b"x" * 200) for at in range(1000)))
        assert (await client.produce("t", bytes(records))).error_code == ErrorCode.NONE
    log_of(node).roll()
    run = asyncio.create_task(node.cluster.clean_logs())
    answered = 0
    while not run.done():
        assert (await other.produce("t", bytes(keyed((b"%d" % answered, b"new"))))).error_code == ErrorCode.NONE
        answered += 1
    await run
    assert answered > 10
    keys = [key for _, key, _ in left(log_of(node))]
    assert len(keys) == 700 + answered
