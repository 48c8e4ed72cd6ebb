"""The group coordinator fails while a transaction is open: the next one has the pending offsets, and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import Connect
from broker.tests.groups.failover import RETRIED, Groups, retried
from broker.tests.groups.transactional_commits import EPOCH, commit, end, request

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_fetch import OffsetFetchRequest

UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Offsets(Groups):
    """Three brokers, and requests to the one that is the group coordinator now."""

    async def commit(self, offset: int, epoch: int = EPOCH) -> ErrorCode:
        client = await self.client(await self.coordinator())
        return ErrorCode((await commit(client, request(("t", 0, offset), epoch=epoch)))["t", 0])

    async def end(self, *, committed: bool) -> ErrorCode:
        """Write a marker as the transaction coordinator does, which retries until it finds the leader."""
        while True:
            error = ErrorCode(await end(await self.client(await self.coordinator()), commit=committed))
            if error not in MOVED:
                return error
            self.clock.advance_timeouts(1)

    async def fetch(self, *, stable: bool = True) -> tuple[ErrorCode, int]:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            "g", topics=[OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[0])]
        )
        client = await self.client(await self.coordinator())
        (response,) = (await client.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8)).groups
        if response.error_code:
            return ErrorCode(response.error_code), -1
        found = response.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.committed_offset


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Offsets]:
    found = Offsets(tmp_path, connect, {"transaction.partition.verification.enable": "false"})
    await found.start()
    await found.create([0, 1, 2])
    yield found
    await found.cluster.stop(grace_ms=100)


async def first_commit(trio: Offsets) -> None:
    """The first FindCoordinator creates `__consumer_offsets`."""
    assert await retried(trio, lambda: trio.commit(4)) == ErrorCode.NONE
    assert await trio.end(committed=True) == ErrorCode.NONE
    assert await trio.fetch() == (ErrorCode.NONE, 4)


@pytest.mark.parametrize("committed", [True, False])
async def test_open_and_ended_transactions_survive_failovers(trio: Offsets, committed: bool) -> None:
    await first_commit(trio)
    assert await trio.commit(5) == ErrorCode.NONE
    await trio.cluster.kill_broker(await trio.coordinator())
    assert await retried(trio, trio.fetch) == UNSTABLE
    assert await trio.fetch(stable=False) == (ErrorCode.NONE, 4)
    assert await trio.commit(6, epoch=EPOCH - 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await trio.end(committed=committed) == ErrorCode.NONE
    assert await trio.fetch() == (ErrorCode.NONE, 5 if committed else 4)
    await trio.cluster.kill_broker(await trio.coordinator())
    assert await retried(trio, trio.fetch) == (ErrorCode.NONE, 5 if committed else 4)


async def test_a_marker_that_is_lost_with_its_leader_ends_no_transaction(trio: Offsets) -> None:
    await first_commit(trio)
    assert await trio.commit(5) == ErrorCode.NONE
    first = await trio.coordinator()
    trio.hold_back(first)
    turned_away = trio.turned_away
    await trio.until(lambda: trio.turned_away > turned_away + 1)
    before = trio.offsets_at(first).log_end_offset
    lost = asyncio.ensure_future(end(await trio.client(first), commit=True))
    await trio.until(lambda: trio.offsets_at(first).log_end_offset > before)
    reader: Any = asyncio.ensure_future(trio.fetch())
    assert await trio.fetch(stable=False) == (ErrorCode.NONE, 4)
    assert not reader.done()
    await trio.cluster.kill_broker(first)
    for vain in (lost, reader):
        with pytest.raises((EOFError, ConnectionError)):
            await vain
    assert await retried(trio, trio.fetch) == UNSTABLE
    assert await trio.end(committed=True) == ErrorCode.NONE
    assert await trio.fetch() == (ErrorCode.NONE, 5)


async def test_a_coordinator_that_is_elected_again_loads_its_log_again(trio: Offsets) -> None:
    """A coordinator loads the log each time it becomes the leader."""
    await first_commit(trio)
    assert await trio.commit(5) == ErrorCode.NONE
    node = trio.cluster.nodes[await trio.coordinator()]
    partition = trio.offsets_at(node.id)
    node.broker.group_coordinator.resigned(0)
    assert (await trio.fetch())[0] in RETRIED
    node.broker.group_coordinator.elected(partition)
    assert await retried(trio, trio.fetch) == UNSTABLE
    assert await trio.end(committed=True) == ErrorCode.NONE
    assert await trio.fetch() == (ErrorCode.NONE, 5)
