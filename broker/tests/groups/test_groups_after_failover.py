"""A group's coordinator dies: the next one knows the members and every offset that was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.test_replication import Connect, Trio

from odradek_broker.deferred import Deferred
from odradek_broker.replication.partition import Partition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.sync_group import SyncGroupRequest

GROUP = "g"
RETRIED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Groups(Trio):
    """`__consumer_offsets` has one partition, on all three."""

    def static(self, broker: int) -> dict[str, str]:
        offsets = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}
        return {**super().static(broker), **offsets}

    async def coordinator(self) -> int:
        client = await self.client(min(self.cluster.nodes))
        return int((await client.ask(FindCoordinatorRequest(GROUP, 0), 3)).node_id)

    def offsets_at(self, broker: int) -> Partition:
        found = self.cluster.nodes[broker].broker.partitions.get("__consumer_offsets", 0)
        assert found is not None
        return found

    async def until_offsets_in_sync(self, *brokers: int) -> None:
        def in_sync() -> bool:
            found = self.cluster.controller.image.partition("__consumer_offsets", 0)
            return found is not None and set(found.isr) == set(brokers)

        await self.until(in_sync)


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Groups]:
    found = Groups(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


class Member:
    """One member, alone in the group, that finds its coordinator anew whenever it has to."""

    def __init__(self, trio: Groups) -> None:
        self._trio = trio
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        client = await self._trio.client(await self._trio.coordinator())
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"metadata")
        request = JoinGroupRequest(GROUP, 60_000, 60_000, "", None, "consumer", [protocol])
        joined = await client.ask(request, 3)
        assert joined.error_code == 0, joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(self.member_id, b"all of it")
        synced = await client.ask(SyncGroupRequest(GROUP, self.generation, self.member_id, assignments=[assignment]), 1)
        assert synced.error_code == 0, synced

    async def commit(self, offset: int) -> ErrorCode:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        request = OffsetCommitRequest(GROUP, self.generation, self.member_id, topics=[topic])
        client = await self._trio.client(await self._trio.coordinator())
        return ErrorCode((await client.ask(request, 6)).topics[0].partitions[0].error_code)

    async def heartbeat(self) -> ErrorCode:
        client = await self._trio.client(await self._trio.coordinator())
        return ErrorCode((await client.ask(HeartbeatRequest(GROUP, self.generation, self.member_id), 2)).error_code)

    async def committed(self) -> tuple[ErrorCode, int]:
        client = await self._trio.client(await self._trio.coordinator())
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])])
        answer = await client.ask(request, 5)
        if answer.error_code:
            return ErrorCode(answer.error_code), -1
        return ErrorCode.NONE, answer.topics[0].partitions[0].committed_offset


async def retried(trio: Groups, ask: Any) -> Any:
    while True:
        answer = await ask()
        if (answer[0] if isinstance(answer, tuple) else answer) not in RETRIED:
            return answer
        trio.clock.advance_timeouts(1)


async def test_members_and_offsets_survive_two_coordinators_killed_in_turn(trio: Groups) -> None:
    await trio.create([0, 1, 2])
    member = Member(trio)
    await member.join()
    assert await member.commit(5) == ErrorCode.NONE
    for offset in (6, 7):
        await trio.cluster.kill_broker(await trio.coordinator())
        assert await retried(trio, member.committed) == (ErrorCode.NONE, offset - 1)
        assert await retried(trio, member.heartbeat) == ErrorCode.NONE
        assert await retried(trio, lambda offset=offset: member.commit(offset)) == ErrorCode.NONE
    assert len(trio.cluster.nodes) == 1
    assert await member.committed() == (ErrorCode.NONE, 7)


async def test_a_new_coordinator_tells_no_offset_before_it_is_known_to_be_committed(trio: Groups) -> None:
    """It has been acknowledged, but the new leader had not heard; or it may yet be lost with that leader."""
    await trio.create([0, 1, 2])
    member = Member(trio)
    await member.join()
    assert await member.commit(5) == ErrorCode.NONE
    first = await trio.coordinator()
    found = trio.cluster.controller.image.partition("__consumer_offsets", 0)
    assert found is not None
    second = next(replica for replica in found.replicas if replica != first)
    trio.hold_back(second)
    follower = trio.offsets_at(second)
    follower.high_watermark -= 1
    await trio.cluster.kill_broker(first)
    assert await trio.coordinator() == second
    assert follower.lags_behind_its_epoch
    assert (await member.committed())[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    trio.let_go(second)
    assert await retried(trio, member.committed) == (ErrorCode.NONE, 5)


async def test_who_waits_for_commits_under_way_is_sent_to_the_next_coordinator_when_this_one_resigns(
    trio: Groups,
) -> None:
    await trio.create([0, 1, 2])
    member = Member(trio)
    await member.join()
    assert await member.commit(5) == ErrorCode.NONE
    first = await trio.coordinator()
    trio.hold_back(first)
    coordinator = trio.cluster.nodes[first].broker.group_coordinator
    partition = trio.offsets_at(first)
    commit = asyncio.ensure_future(member.commit(6))
    await trio.until(lambda: partition.log_end_offset > partition.high_watermark)
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(GROUP)
    answers = [coordinator.fetch_offsets(wanted, True), coordinator.delete_group(GROUP)]
    answers.append(coordinator.delete_offsets(OffsetDeleteRequest(GROUP)))
    coordinator.resigned(0)
    errors = [answer.result().error_code for answer in answers if isinstance(answer, Deferred) and answer.done]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 3
    assert await commit == ErrorCode.NOT_COORDINATOR


async def test_nobody_sees_an_offset_that_the_next_failover_takes_back(trio: Groups) -> None:
    await trio.create([0, 1, 2])
    member = Member(trio)
    await member.join()
    assert await member.commit(5) == ErrorCode.NONE
    first = await trio.coordinator()
    found = trio.cluster.controller.image.partition("__consumer_offsets", 0)
    assert found is not None
    second, third = (replica for replica in found.replicas if replica != first)
    trio.hold_back(first, third)
    await trio.until(lambda: trio.turned_away)
    end = trio.offsets_at(first).log_end_offset
    unacknowledged = asyncio.ensure_future(member.commit(9))
    await trio.until(lambda: trio.offsets_at(second).log_end_offset == end + 1)
    assert trio.offsets_at(third).log_end_offset == end
    trio.hold_back(second)
    await trio.cluster.kill_broker(first)
    with pytest.raises((EOFError, ConnectionError)):
        await unacknowledged
    assert await trio.coordinator() == second
    assert (await member.committed())[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.cluster.kill_broker(second)
    assert await retried(trio, member.committed) == (ErrorCode.NONE, 5)
