"""Markers of decided transactions find the leaders of their partitions, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import TIMEOUT_S
from broker.tests.test_replication import Connect
from broker.tests.test_write_txn_markers import marker, outcome
from broker.tests.transactions.producers import TransactionalProducer, Transactions

from odradek_broker.coordinators.markers import RETRY_MS
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Transactions]:
    found = Transactions(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def undecided(trio: Transactions, replicas: int = 1, **configs: str) -> tuple[TransactionalProducer, int]:
    """A producer with a record in its open transaction, and the leader of the record's partition, which is not the
    coordinator's broker."""
    producer = trio.producer()
    coordinator = await producer.coordinator()
    leader = trio.other_than(coordinator)
    others = [broker for broker in (0, 1, 2) if broker not in (leader, coordinator)]
    await trio.create([leader, *others][:replicas], **configs)
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.add(("t", 0))) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.produce(leader)) == ErrorCode.NONE
    return producer, leader


async def until_without_time(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)


def is_open(trio: Transactions, broker: int) -> bool:
    return trio.hosted(broker).log.first_unstable_offset(trio.hosted(broker).log_end_offset) is not None


async def test_a_transaction_is_complete_when_a_leader_on_another_broker_has_its_marker(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    assert is_open(trio, leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert not is_open(trio, leader)
    assert trio.hosted(leader).log_end_offset == 2


async def test_the_decision_is_answered_before_the_markers_are_written(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end(commit=False) == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "PrepareAbort")
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    await trio.until(adding.done)
    assert adding.result() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await trio.producer().init() == ErrorCode.CONCURRENT_TRANSACTIONS
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteAbort")
    assert [each.producer_id for each in trio.hosted(leader).log.aborted_transactions(0, 2)] == [producer.producer.id]


async def test_who_begins_the_next_transaction_waits_for_the_markers_of_the_one_before(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await until_without_time(lambda: trio.markers_held)
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    assert not adding.done()
    trio.let_go(leader)
    trio.clock.advance_timeouts(RETRY_MS)
    await until_without_time(adding.done)
    assert adding.result() == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "Ongoing")


async def test_who_has_gone_away_while_waiting_for_markers_begins_nothing(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await until_without_time(lambda: trio.markers_held)
    coordinator = trio.cluster.nodes[await producer.coordinator()]
    client = await trio.client(coordinator.id)
    connections = coordinator.server.connections
    seen: list[int] = []
    coordinator.broker.interceptors.before_handle.append(lambda ctx, request: seen.append(ctx.api_key))
    client.send(producer.to_add(("t", 0)), 3)
    await until_without_time(lambda: ApiKey.ADD_PARTITIONS_TO_TXN in seen)
    before = len(connections)
    client.close()
    await until_without_time(lambda: len(connections) < before)
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert await producer.state() == (ErrorCode.NONE, "CompleteCommit")


async def test_who_waits_for_markers_is_sent_to_the_next_coordinator_when_this_one_stops(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    coordinator = await producer.coordinator()
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    trio.cluster.nodes[coordinator].broker.transactions.resigned(0)
    assert await adding == ErrorCode.NOT_COORDINATOR


async def test_a_marker_is_sent_again_after_a_lost_connection(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held >= 3)
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert trio.hosted(leader).log_end_offset == 2


async def test_a_marker_follows_the_partition_to_its_next_leader(trio: Transactions) -> None:
    producer, leader = await undecided(trio, replicas=2)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held)
    await trio.cluster.kill_broker(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert trio.partition.leader != leader
    assert not is_open(trio, trio.partition.leader)


async def test_a_marker_waits_until_somebody_leads_the_partition(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.cluster.kill_broker(leader)
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    await trio.cluster.start_broker(trio.static(leader))
    await trio.until_state(producer, "CompleteCommit")
    assert not is_open(trio, leader)


async def test_a_marker_waits_until_enough_replicas_are_in_sync(trio: Transactions) -> None:
    producer, leader = await undecided(trio, replicas=2, min_insync_replicas="2")
    other = next(replica for replica in trio.partition.replicas if replica != leader)
    await trio.cluster.kill_broker(other)
    assert await outcome(await trio.client(leader), marker(producer=99)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await producer.end() == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    await trio.cluster.start_broker(trio.static(other))
    await trio.until_state(producer, "CompleteCommit")


async def test_a_partition_that_is_deleted_needs_no_marker(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    client: Any = await trio.client(leader)
    assert (await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)).responses[0].error_code == 0
    await trio.until_state(producer, "CompleteCommit")


async def test_a_partition_whose_producer_went_on_in_a_newer_epoch_needs_no_marker(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    newer = marker(producer=producer.producer.id, epoch=producer.producer.epoch + 1)
    assert await outcome(await trio.client(leader), newer) == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")


async def test_markers_of_a_coordinator_that_has_a_successor_are_given_up(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    later = marker(producer=producer.producer.id, epoch=producer.producer.epoch, commit=True, coordinator_epoch=9)
    assert await outcome(await trio.client(leader), later) == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    trio.clock.advance_timeouts(60_000)
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    assert trio.hosted(leader).log_end_offset == 2


async def test_the_next_coordinator_sends_the_markers_that_its_predecessor_could_not(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    coordinator = await producer.coordinator()
    await trio.until(lambda: trio.state_at(coordinator).leader.isr == frozenset({0, 1, 2}))  # type: ignore[union-attr]
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held)
    await trio.cluster.kill_broker(coordinator)
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert await producer.coordinator() != coordinator
    assert not is_open(trio, leader)
    (entry,) = trio.hosted(leader).log.producers
    assert entry.coordinator_epoch == trio.state_at(await producer.coordinator()).leader_epoch > 0


async def test_a_coordinator_that_is_killed_sends_nothing_more(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held)
    await trio.cluster.kill()
    assert [task for task in asyncio.all_tasks() if "MarkerSender" in repr(task.get_coro())] == []
