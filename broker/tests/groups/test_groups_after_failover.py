"""The group coordinator fails: the next one has the members and every acknowledged offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.tests.conftest import Connect
from broker.tests.groups.failover import GROUP, Groups, Member, retried

from odradek_broker.deferred import Deferred
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Groups]:
    found = Groups(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


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


async def test_a_new_coordinator_returns_committed_records_only(trio: Groups) -> None:
    """The new leader has an acknowledged record above its high watermark; it does not know whether it is committed."""
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
    assert follower.is_behind_epoch_start
    assert (await member.committed())[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    trio.let_go(second)
    assert await retried(trio, member.committed) == (ErrorCode.NONE, 5)


async def test_resigning_fails_requests_that_wait_for_pending_commits(
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
    fetched = coordinator.fetch_offsets(wanted, True)
    responses = [coordinator.delete_group(GROUP), coordinator.delete_offsets(OffsetDeleteRequest(GROUP))]
    assert isinstance(fetched, Deferred)
    responses.append(fetched.map(lambda offsets: offsets.group))
    coordinator.resigned(0)
    errors = [
        response.result().error_code for response in responses if isinstance(response, Deferred) and response.done
    ]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 3
    assert await commit == ErrorCode.NOT_COORDINATOR


async def test_no_client_sees_an_offset_that_a_failover_loses(trio: Groups) -> None:
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
