"""Replication among the brokers of one process: acknowledged records survive every change of leaders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.three_brokers import (
    BROKER,
    LAG_TIME_MAX_MS,
    TIMEOUT_S,
    TOPIC,
    Connect,
    Trio,
    configure,
    delete_records,
    fetch,
    latest,
)

from odradek_broker.apis import slices
from odradek_broker.network.interceptors import Disconnect
from odradek_broker.replication.partition import Partition
from odradek_controller.image import PartitionRegistration
from odradek_log.checkpoints import read_offsets
from odradek_log.directory import LogDirectory
from odradek_log.disk import RealDisk
from odradek_log.log_errors import CorruptLogError
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.list_offsets import ListOffsetsRequest
from odradek_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek_wire.records.batch import read_header, set_offset_and_leader_epoch


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Trio]:
    found = Trio(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def test_records_with_acks_all_are_identical_on_all_replicas(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    for value in (b"a", b"b" * 10_000, b"c"):
        assert (await client.produce("t", make_batch(value))).error_code == 0
    assert trio.log_of(0) == trio.log_of(1) == trio.log_of(2)
    assert await latest(client) == (0, 3)


@pytest.mark.parametrize("release", ["3.9", "4.3"])
async def test_acks_all_needs_no_time_on_the_clock_of_timeouts(
    tmp_path: Path, connect: Connect, make_batch: Any, release: str
) -> None:
    """A waiting Fetch of a follower delays no acknowledgement; from 4.3 on the Fetch has the follower's high
    watermark."""
    trio = Trio(tmp_path, connect, {"odradek.emulate": release})
    await trio.start()
    try:
        await trio.create([0, 1, 2])
        await trio.until_in_sync(0, 1, 2)
        client = await trio.client(0)
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(20):
                assert (await client.produce("t", make_batch(b"%d" % number), acks=-1)).error_code == 0
    finally:
        await trio.cluster.stop(grace_ms=100)


async def test_followers_of_a_large_new_topic_need_no_time_on_the_clock_of_timeouts(
    trio: Trio, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "TURN_S", 0)
    client = await trio.client(2)
    await trio.create([2, 1, 0], partitions=300)
    for index in (0, 150, 299):
        assert (await client.produce("t", make_batch(b"v"), partition=index)).error_code == ErrorCode.NONE


async def test_a_stop_during_a_deletion_deletes_the_logs_of_all_brokers(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([2, 1, 0], partitions=300)
    monkeypatch.setattr(slices, "TURN_S", 0)
    cluster = trio.cluster
    directories = [directory for node in cluster.nodes.values() for directory in node.directories]
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=5000)
    deletion = asyncio.ensure_future(cluster.controller.submit(request))
    while all(len(directory.logs) == 300 for directory in directories):
        await asyncio.sleep(0)
    assert all(directory.logs for directory in directories)
    await cluster.stop(grace_ms=100)
    await deletion
    assert [directory.logs for directory in directories] == [{}, {}, {}]


async def test_consumers_read_up_to_the_high_watermark(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"b"), acks=1)
    assert await latest(client) == (0, 1)
    assert (await fetch(client, offset=1)).records == b""
    trio.let_go(1)
    await trio.until(lambda: trio.cluster.nodes[1].broker.partitions.get("t", 0).high_watermark == 2)  # type: ignore[union-attr]
    assert await latest(client) == (0, 2)


async def test_the_latest_offset_never_decreases_at_a_failover(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    for value in (b"a", b"b"):
        assert (await client.produce("t", make_batch(value))).error_code == 0
    await trio.cluster.kill_broker(1)
    assert (trio.partition.leader, trio.partition.isr) == (2, (2,))
    assert await latest(await trio.client(2)) == (0, 2)


async def test_a_new_leader_returns_offset_not_available(trio: Trio, make_batch: Any) -> None:
    """The new leader has the records but not their high watermark, and waits for a Fetch of another replica."""
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    trio.hold_back(1)
    await client.produce("t", make_batch(b"a"), acks=1)
    trio.let_go(1)
    await trio.until(lambda: trio.log_of(2) == trio.log_of(0) == trio.log_of(1))
    trio.hold_back(2)
    await trio.cluster.kill_broker(1)
    follower = trio.cluster.nodes[2].broker.partitions.get("t", 0)
    assert follower is not None
    assert follower.leader is not None
    follower.high_watermark = follower.leader.high_watermark = 0
    new = await trio.client(2)
    assert await latest(new) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    trio.let_go(2)
    await trio.until(lambda: follower.high_watermark == 1)
    assert await latest(new) == (0, 1)


async def test_a_restarted_replica_truncates_uncommitted_records(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"only here"), acks=1)
    await trio.cluster.kill_broker(1)
    assert (await (await trio.client(2)).produce("t", make_batch(b"b"))).base_offset == 1
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    assert trio.log_of(1) == trio.log_of(2)
    assert b"only here" not in trio.log_of(1)


async def test_acks_all_needs_min_insync_replicas(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2], min_insync_replicas="2")
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.kill_broker(2)
    refused = await client.produce("t", make_batch(b"b"))
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    assert (await client.produce("t", make_batch(b"b"), acks=1)).error_code == ErrorCode.NONE
    assert await latest(client) == (0, 1)
    await trio.cluster.start_broker(trio.static(2))
    await trio.until_in_sync(1, 2)
    assert (await client.produce("t", make_batch(b"c"))).error_code == ErrorCode.NONE
    assert await latest(client) == (0, 3)


async def test_a_slow_follower_leaves_and_rejoins_the_isr(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    waiting = asyncio.ensure_future(client.produce("t", make_batch(b"b")))
    leader = trio.cluster.nodes[1].broker.partitions.get("t", 0)
    assert leader is not None
    await trio.until(lambda: leader.log_end_offset == 2)
    for _ in range(3):
        trio.clock.advance_timeouts(LAG_TIME_MAX_MS // 2)
    await trio.until_in_sync(1)
    assert (await waiting).error_code == 0
    trio.let_go(1)
    await trio.until_in_sync(1, 2)


async def test_a_controlled_shutdown_moves_leaders_first(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    await (await trio.client(1)).produce("t", make_batch(b"a"))
    await trio.cluster.stop_broker(1)
    assert (trio.partition.leader, trio.partition.isr) == (2, (2, 0))
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(0, 1, 2)
    request = ElectLeadersRequest(0, [ElectLeadersRequest.TopicPartitions("t", [0])])
    response = await (await trio.client(0)).ask(request, 2)
    assert response.replica_election_results[0].partition_result[0].error_code == 0
    assert trio.partition.leader == 1


async def test_a_reassignment_moves_replicas_to_another_broker(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                "t", [AlterPartitionReassignmentsRequest.ReassignablePartition(0, [0, 2])]
            )
        ]
    )
    trio.hold_back(1)
    response = await client.ask(request, 1)
    assert response.responses[0].partitions[0].error_code == 0
    (listed,) = (await client.ask(ListPartitionReassignmentsRequest(), 0)).topics
    assert listed.partitions[0].adding_replicas == [0]
    trio.let_go(1)
    await trio.until(lambda: not trio.partition.reassigning)
    assert (trio.partition.replicas, set(trio.partition.isr)) == ((0, 2), {0, 2})
    assert trio.log_of(0) == trio.log_of(2)
    assert trio.cluster.nodes[1].broker.partitions.get("t", 0) is None
    assert (await (await trio.client(trio.partition.leader)).produce("t", make_batch(b"b"))).base_offset == 1


async def test_a_consumer_reads_from_the_replica_in_its_rack(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    assert (await fetch(client, rack="rack-1")).preferred_read_replica == -1
    assert (await fetch(client, rack="rack-2")).preferred_read_replica == 2
    follower = trio.cluster.nodes[2].broker.partitions.get("t", 0)
    assert follower is not None
    await trio.until(lambda: follower.high_watermark == 1)
    served = await fetch(await trio.client(2), rack="rack-2")
    assert (served.error_code, bytes(served.records)) == (0, trio.log_of(1))


async def test_a_follower_without_a_leader_serves_committed_records(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    follower = trio.hosted(2)
    await trio.until(lambda: follower.high_watermark == 1)
    trio.hold_back(1)
    await client.produce("t", make_batch(b"only here"), acks=1)
    for _ in range(3):
        trio.clock.advance_timeouts(LAG_TIME_MAX_MS // 2)
    await trio.until_in_sync(1)
    await trio.cluster.kill_broker(1)
    await trio.until(lambda: trio.partition.leader == -1 and not follower.is_following)
    served = await fetch(await trio.client(2))
    assert (served.error_code, bytes(served.records)) == (0, trio.log_of(2))


async def test_recovery_after_truncation_trusts_no_old_recovery_point(trio: Trio, make_batch: Any) -> None:
    def write_down(directory: LogDirectory) -> None:
        trio.hosted(1).log.roll()
        trio.hosted(1).log.flush()
        directory.prepare_checkpoints()
        directory.write_checkpoints()

    assert await after_a_crash(trio, make_batch, "recovery-point-offset-checkpoint", write_down) <= 1


async def test_recovery_after_truncation_trusts_no_old_cleaner_checkpoint(trio: Trio, make_batch: Any) -> None:
    def write_down(directory: LogDirectory) -> None:
        trio.hosted(1).log.cleaner.checkpoint = 2
        directory.prepare_cleaner_checkpoint()
        directory.write_cleaner_checkpoint()

    assert await after_a_crash(trio, make_batch, "cleaner-offset-checkpoint", write_down) == 0


async def after_a_crash(trio: Trio, make_batch: Any, file: str, write_down: Callable[[LogDirectory], None]) -> int:
    """Return a checkpoint, which was 2, after the broker has truncated its log to 1 and rejoined the ISR."""
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"only here"), acks=1)
    (directory,) = trio.cluster.nodes[1].directories
    write_down(directory)
    await trio.cluster.kill_broker(1)
    await (await trio.client(2)).produce("t", make_batch(b"b"))
    checkpoint = trio.path / "broker-1" / file
    assert read_offsets(RealDisk(), str(checkpoint))["t", 0] == 2
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    return read_offsets(RealDisk(), str(checkpoint))["t", 0]


async def test_a_follower_below_the_leaders_start_offset_starts_there(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.stop_broker(2)
    for value in (b"b", b"c", b"d"):
        await client.produce("t", make_batch(value))
    await delete_records(client, 3)
    await trio.cluster.start_broker(trio.static(2))
    await trio.until_in_sync(1, 2)
    assert (trio.hosted(2).log_start_offset, trio.hosted(2).log_end_offset) == (3, 4)
    assert b"d" in (trio.path / "broker-2" / "t-0" / "00000000000000000003.log").read_bytes()


async def test_a_leader_elected_during_an_out_of_range_keeps_its_log(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.stop_broker(2)
    await client.produce("t", make_batch(b"b"))
    await delete_records(client, 2)
    asked = asyncio.Event()

    def judge(ctx: Any, request: Any) -> Disconnect | None:
        if ctx.api_key == ApiKey.LIST_OFFSETS and (ctx.client_id or "").startswith("broker-"):
            asked.set()
        return None

    trio.cluster.nodes[1].broker.interceptors.before_handle.append(judge)
    await trio.cluster.start_broker(trio.static(2))
    await trio.until(asked.is_set)
    follower = trio.hosted(2)
    follower.follow(follower.leader_epoch + 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert follower.log_end_offset == 1


async def test_a_follower_appends_no_batch_of_a_later_leader_epoch(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    await trio.until_in_sync(1, 2)
    follower = trio.hosted(2)
    records = bytearray(make_batch(b"a"))
    for epoch, end in ((follower.leader_epoch + 1, 0), (follower.leader_epoch, 1)):
        set_offset_and_leader_epoch(records, read_header(records), 0, epoch)
        follower.append_as_follower(memoryview(records), 0, 0)
        assert follower.log_end_offset == end


async def test_a_fetch_of_a_follower_names_only_changed_partitions(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2], partitions=20)
    client = await trio.client(1)

    def active(leader: int = 1) -> int:
        sessions = trio.cluster.nodes[leader].broker.fetch_sessions._sessions.values()
        followers = [session for session in sessions if session.privileged]
        return sum(len(session.active) for session in followers) if followers else -1

    await trio.until(lambda: not active())
    assert (await client.produce("t", make_batch(b"a"), partition=7)).error_code == 0
    assert trio.log_of(2, 7) == trio.log_of(1, 7) != b""
    await trio.until(lambda: not active())
    for _ in range(4):
        trio.clock.advance_timeouts(LAG_TIME_MAX_MS)
        await asyncio.sleep(0)
    assert set(trio.partition.isr) == {1, 2}
    assert (await client.produce("t", make_batch(b"b"), partition=7)).error_code == 0
    assert trio.log_of(2, 7) == trio.log_of(1, 7)
    await trio.cluster.kill_broker(1)
    await trio.cluster.start_broker(trio.static(1))
    await trio.until(lambda: not active(2))


async def test_an_idle_follower_rejoins_an_isr_that_it_left(trio: Trio) -> None:
    await trio.create([1, 2])
    sessions = trio.cluster.nodes[1].broker.fetch_sessions._sessions.values()
    await trio.until(lambda: any(each.privileged and not each.active for each in sessions))
    partition = trio.hosted(1)
    assert partition.leader is not None
    # The response to AlterPartition arrives before the metadata.
    partition.apply_isr(frozenset({1}), partition.leader.partition_epoch + 1)
    await trio.until(lambda: partition.leader is not None and partition.leader.proposed_isr == {1, 2})


async def test_a_follower_may_forget_a_partition_that_changes_meanwhile(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2], partitions=2)
    client = await trio.client(1)
    broker = trio.cluster.nodes[1].broker
    sessions = broker.fetch_sessions._sessions.values()
    await trio.until(lambda: any(each.privileged and not each.active for each in sessions))
    (session,) = (each for each in sessions if each.privileged)
    forgotten = next(key for key in session.partitions if key[1] == 0)
    broker.purgatory.check_and_complete(trio.hosted(1).replica_watchers)
    session.update([], [forgotten])
    assert (await client.produce("t", make_batch(b"a"), partition=1)).error_code == 0
    assert trio.log_of(2, 1) == trio.log_of(1, 1) != b""


async def test_an_error_of_one_partition_does_not_stop_fetching_others(
    trio: Trio, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([1, 2], partitions=2)
    copy = Partition.append_as_follower

    def fail(partition: Partition, *args: Any) -> None:
        assert partition.index != 0, "planted"
        copy(partition, *args)

    monkeypatch.setattr(Partition, "append_as_follower", fail)
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"), acks=1)
    for _ in range(3):
        assert (await client.produce("t", make_batch(b"b"), partition=1)).error_code == 0
    assert trio.log_of(2, 1) == trio.log_of(1, 1)


async def test_a_killed_broker_leaves_no_task_behind(trio: Trio, make_batch: Any) -> None:
    def fetching() -> set[int]:
        tasks = [task.get_coro() for task in asyncio.all_tasks()]
        return {task.cr_frame.f_locals["self"]._state.node_id for task in tasks if "Fetcher" in task.__qualname__}  # type: ignore[union-attr]

    await trio.create([1, 2], partitions=5)
    await trio.until(lambda: fetching() == {2})
    await trio.cluster.kill_broker(1)
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    assert fetching() == {1}
    await trio.cluster.kill_broker(1)
    assert fetching() == set()


@pytest.mark.parametrize("version", [3, 9, 10, 12])
async def test_a_produce_to_a_follower_returns_the_leader(trio: Trio, make_batch: Any, version: int) -> None:
    await trio.create([1, 2])
    response = await (await trio.client(2)).produce("t", make_batch(b"a"), version=version)
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.current_leader.leader_id == (1 if version >= 10 else -1)


async def test_records_are_deleted_when_all_live_replicas_have_deleted_them(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    for value in (b"a", b"b", b"c"):
        await client.produce("t", make_batch(value))
    trio.hold_back(1)
    waiting = asyncio.ensure_future(delete_records(client, 2))
    await trio.until(lambda: trio.hosted(1).log_start_offset == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    trio.let_go(1)
    await trio.until(waiting.done)
    assert await waiting == (0, 2)
    assert [trio.hosted(broker).log_start_offset for broker in range(3)] == [2, 2, 2]
    await trio.cluster.kill_broker(0)
    assert await delete_records(client, -1) == (0, 3)
    await trio.cluster.kill_broker(1)
    assert trio.hosted(2).log_start_offset == 3


async def test_delete_records_ends_at_its_timeout_or_without_its_replica(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    for value in (b"a", b"b"):
        await client.produce("t", make_batch(value))
    trio.hold_back(1)
    waiting = asyncio.ensure_future(delete_records(client, 1, timeout_ms=300))
    await trio.until(waiting.done)
    assert await waiting == (ErrorCode.REQUEST_TIMED_OUT, 0)
    waiting = asyncio.ensure_future(delete_records(client, 2, timeout_ms=60_000))
    await trio.until(lambda: trio.hosted(1).log_start_offset == 2)
    await trio.cluster.kill_broker(2)
    await trio.until(waiting.done)
    assert await waiting == (0, 2)


async def test_an_unclean_leader_is_elected_once_it_is_enabled(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.kill_broker(2)
    await client.produce("t", make_batch(b"only here"))
    await trio.cluster.kill_broker(1)
    await trio.cluster.start_broker(trio.static(2))
    assert trio.partition.leader == -1
    client = await trio.client(0)
    await configure(client, TOPIC, "t", {"unclean.leader.election.enable": "true"})
    assert (trio.partition.leader, trio.partition.isr) == (2, (2,))
    assert await latest(await trio.client(2)) == (0, 1)
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    assert trio.log_of(1) == trio.log_of(2)


async def test_only_a_clean_shutdown_keeps_an_eligible_leader(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2], min_insync_replicas="2")
    await (await trio.client(1)).produce("t", make_batch(b"a"))
    trio.hold_back(1)
    for end, eligible in ((trio.cluster.stop_broker, (2,)), (trio.cluster.kill_broker, ())):
        await end(2)
        assert (trio.partition.isr, trio.partition.eligible_leader_replicas) == ((1,), (2,))
        await trio.cluster.start_broker(trio.static(2))
        assert (trio.partition.isr, trio.partition.eligible_leader_replicas) == ((1,), eligible)
        trio.let_go(1)
        await trio.until_in_sync(1, 2)
        trio.hold_back(1)


async def test_another_leader_epoch_is_refused_by_leader_and_follower(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    await (await trio.client(1)).produce("t", make_batch(b"a"))
    await trio.cluster.kill_broker(1)
    epoch = trio.partition.leader_epoch
    response = await (await trio.client(0)).ask(MetadataRequest([MetadataRequest.MetadataRequestTopic(name="t")]), 9)
    assert (response.topics[0].partitions[0].leader_id, response.topics[0].partitions[0].leader_epoch) == (2, epoch)

    async def errors(broker: int, asked: int) -> set[int]:
        client = await trio.client(broker)
        fetched = FetchRequest.FetchPartition(0, asked, 0, partition_max_bytes=1000)
        fetch = FetchRequest(replica_id=-1, topics=[FetchRequest.FetchTopic("t", partitions=[fetched])])
        listed = ListOffsetsRequest.ListOffsetsPartition(0, asked, -2)
        ended = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, asked, 0)
        return {
            (await client.ask(fetch, 10)).responses[0].partitions[0].error_code,
            (await client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic("t", [listed])]), 6))
            .topics[0]
            .partitions[0]
            .error_code,
            (
                await client.ask(
                    OffsetForLeaderEpochRequest(-1, [OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [ended])]), 3
                )
            )
            .topics[0]
            .partitions[0]
            .error_code,
        }

    for broker in (2, 0):
        assert await errors(broker, epoch - 1) == {ErrorCode.FENCED_LEADER_EPOCH}
        assert await errors(broker, epoch + 1) == {ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert await errors(2, epoch) == {ErrorCode.NONE}
    assert await errors(0, epoch) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_a_fetch_with_an_old_broker_epoch_is_ignored(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    present = trio.cluster.controller.image.brokers[2].epoch
    topic_id = trio.cluster.controller.image.topics["t"].id

    async def fetch_as(epoch: int) -> int:
        wanted = FetchRequest.FetchPartition(0, -1, 1, partition_max_bytes=1000)
        request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])], max_wait_ms=0)
        request.replica_state = FetchRequest.ReplicaState(2, epoch)
        return int((await client.ask(request, 15)).responses[0].partitions[0].error_code)

    assert await fetch_as(present) == ErrorCode.NONE
    assert await fetch_as(present - 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("side", "slow_broker"), [("leader", 1), ("follower", 2)])
async def test_a_throttled_replica_catches_up_within_the_quota(
    trio: Trio, make_batch: Any, side: str, slow_broker: int
) -> None:
    await trio.create([1, 2], max_message_bytes="100000")
    client = await trio.client(1)
    await trio.cluster.stop_broker(2)
    for _ in range(20):
        await client.produce("t", make_batch(b"v" * 10_000))
    await configure(client, TOPIC, "t", {f"{side}.replication.throttled.replicas": f"0:{slow_broker}"})
    await configure(client, BROKER, "", {f"{side}.replication.throttled.rate": "20000"})
    # One batch per Fetch, so that the quota can delay the next.
    static = {**trio.static(2), "replica.fetch.max.bytes": "1024", "replica.fetch.response.max.bytes": "1024"}
    started_ms = trio.clock.monotonic_ms()
    await trio.cluster.start_broker(static)
    await trio.until_in_sync(1, 2)
    took_ms = trio.clock.monotonic_ms() - started_ms
    assert 8_000 <= took_ms < 14_000, "200 kB at 20 kB/s"
    await configure(client, BROKER, "", {f"{side}.replication.throttled.rate": "1"})
    assert (await client.produce("t", make_batch(b"in sync"))).error_code == 0


async def test_the_last_stopped_replica_leads_after_its_restart(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.kill_broker(2)
    await client.produce("t", make_batch(b"b"))
    await trio.cluster.stop_broker(1)
    assert (trio.partition.leader, trio.partition.isr, trio.partition.eligible_leader_replicas) == (-1, (), (1,))
    await trio.cluster.start_broker(trio.static(2))
    assert trio.partition.leader == -1, "broker 2 lacks a record"
    await trio.cluster.start_broker(trio.static(1))
    assert trio.partition.leader == 1
    assert await latest(await trio.client(1)) == (0, 2)
    await trio.until_in_sync(1, 2)


async def test_a_produce_to_a_stopping_broker_returns_the_new_leader(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client, other = await trio.client(1), await trio.client(2)
    trio.hold_back(1)
    await client.produce("t", make_batch(b"a"), acks=1)
    waiting = asyncio.ensure_future(client.produce("t", make_batch(b"b")))
    await trio.until(lambda: trio.hosted(1).log_end_offset == 2)
    await trio.cluster.stop_broker(1, grace_ms=1000)
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio.partition.leader == 2
    assert (await other.produce("t", make_batch(b"b"))).error_code == 0


async def test_a_restarted_broker_serves_its_new_rack(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    assert (await fetch(client, rack="rack-2")).preferred_read_replica == 2
    await trio.cluster.stop_broker(2)
    await trio.cluster.start_broker({**trio.static(2), "broker.rack": "elsewhere"})
    await trio.until_in_sync(1, 2)
    assert trio.cluster.controller.image.brokers[2].rack == "elsewhere"
    assert (await fetch(client, rack="rack-2")).preferred_read_replica == -1
    assert (await fetch(client, rack="elsewhere")).preferred_read_replica == 2


async def test_a_broker_is_drained_onto_a_new_one_during_produces(trio: Trio, make_batch: Any) -> None:
    count = 6
    await trio.create([1, 2], partitions=count)
    await trio.cluster.start_broker(trio.static(3))
    client = await trio.client(1)
    for index in range(count):
        for _ in range(5):
            assert (await client.produce("t", make_batch(b"v" * 500), partition=index)).error_code == 0
    partitions = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(index, [3, 2] if index % 2 else [2, 3])
        for index in range(count)
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic("t", partitions)
    response = await client.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 1)
    assert not any(each.error_code for each in response.responses[0].partitions)

    def registered(index: int) -> PartitionRegistration:
        found = trio.cluster.controller.image.partition("t", index)
        assert found is not None
        return found

    written = 0
    async with asyncio.timeout(TIMEOUT_S):
        while any(registered(index).reassigning for index in range(count)):
            index = written % count
            leader = await trio.client(registered(index).leader)
            written += (await leader.produce("t", make_batch(b"w"), partition=index, acks=1)).error_code == 0
            trio.clock.advance_timeouts(1)
    for index in range(count):
        assert set(registered(index).replicas) == {2, 3}
        leader = await trio.client(registered(index).leader)
        assert (await leader.produce("t", make_batch(b"x"), partition=index)).error_code == 0
        assert trio.log_of(2, index) == trio.log_of(3, index)
    assert not list((trio.path / "broker-1").glob("t-?"))
    await trio.cluster.stop_broker(1)
    assert all(registered(index).leader in (2, 3) for index in range(count))


@pytest.mark.parametrize("broker", [1, 2])
async def test_a_replica_with_a_corrupt_log_never_leads_nor_blocks_others(
    trio: Trio, make_batch: Any, broker: int
) -> None:
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hosted(broker).log.go_offline("read", CorruptLogError("planted"))
    await trio.until_in_sync(*{0, 1, 2} - {broker})
    assert trio.partition.leader == (2 if broker == 1 else 1)
    leader = await trio.client(trio.partition.leader)
    assert (await leader.produce("t", make_batch(b"b"))).error_code == 0
    await trio.cluster.kill_broker(0)
    await trio.cluster.kill_broker(trio.partition.leader)
    assert trio.partition.leader == -1, "no running replica has the record"
    await trio.cluster.start_broker(trio.static(0))
    assert trio.partition.leader == (0 if 0 in trio.partition.isr else -1)
    await trio.cluster.kill_broker(broker)
    for each in {0, 1, 2} - set(trio.cluster.nodes):
        await trio.cluster.start_broker(trio.static(each))
    await trio.until_in_sync(0, 1, 2)
    assert await latest(await trio.client(trio.partition.leader)) == (0, 2)


async def test_preferred_leaders_are_elected_at_the_interval(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    await (await trio.client(1)).produce("t", make_batch(b"a"))
    await trio.cluster.stop_broker(1)
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    assert trio.partition.leader == 2
    trio.clock.advance_timeouts(300_000)
    await trio.until(lambda: trio.partition.leader == 1)
