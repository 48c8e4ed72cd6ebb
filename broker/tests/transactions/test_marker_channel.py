"""Markers for one broker: slow partitions do not delay the markers of other transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.tests.three_brokers import Connect
from broker.tests.transactions.marker_senders import (
    Coordinator,
    begun,
    hosted,
    manager_of,
    markers_of,
    markers_seen,
    sending_tasks,
)
from broker.tests.transactions.producers import Transactions

from odradek_broker.transactions.marker_channel import SLOW_MS
from odradek_wire.errors import ErrorCode


@pytest.fixture
async def patient(tmp_path: Path, connect: Connect) -> AsyncIterator[Transactions]:
    """Three brokers, in which a follower stays in sync although it does not fetch."""
    forever = {"replica.lag.time.max.ms": "100000000", "request.timeout.ms": "10000000"}
    found = Transactions(tmp_path, connect, forever)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def one_slow_partition(trio: Transactions) -> tuple[int, int]:
    """Create topic t on two brokers, of which the follower does not fetch, and topic u on the leader alone. Return the
    leader and the coordinator, a third broker."""
    coordinator = await trio.producer().coordinator()
    leader = trio.other_than(coordinator)
    follower = trio.other_than(coordinator, leader)
    await trio.create([leader, follower])
    await trio.create([leader], topic="u")
    trio.hold_back(leader, follower)
    return leader, coordinator


async def test_a_slow_partition_does_not_delay_other_transactions(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = [await begun(patient, leader, f"slow-{number}", "t") for number in range(3)]
    prompt = await begun(patient, leader, "prompt", "u")
    mixed = await begun(patient, leader, "mixed", "t", "u")
    requests = markers_seen(patient, leader)
    for producer in (slow[0], prompt, *slow[1:], mixed):
        assert await producer.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert patient.clock.monotonic_ms() < 10_000, "no marker waited for request.timeout.ms"
    for producer in (*slow, mixed):
        assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    # Markers for a slow partition wait for the request that names it.
    patient.clock.advance_timeouts(10_000)
    assert requests == [["t"], ["u", "u"]]
    patient.let_go(leader)
    for producer in (*slow, mixed):
        await patient.until_state(producer, "CompleteCommit")
    assert hosted(patient, leader, "t").log_end_offset == 8, "one marker for each record"


async def test_a_marker_in_a_request_with_a_slow_one_completes_first(
    patient: Transactions,
) -> None:
    leader, _ = await one_slow_partition(patient)
    first, prompt, last = [await begun(patient, leader, name, "u") for name in ("first", "prompt", "last")]
    slow = await begun(patient, leader, "slow", "t")
    requests = markers_seen(patient, leader, first_ms=SLOW_MS // 2)
    for producer in (first, slow, prompt):
        assert await producer.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert await slow.state() == (ErrorCode.NONE, "PrepareCommit")
    # The marker for the slow partition is sent again in a request of its own.
    await patient.until(lambda: len(requests) == 3)
    assert await last.end() == ErrorCode.NONE
    await patient.until_state(last, "CompleteCommit")
    patient.clock.advance_timeouts(10_000)
    assert requests == [["u"], ["t", "u"], ["t"], ["u"]]
    patient.let_go(leader)
    await patient.until_state(slow, "CompleteCommit")


async def test_several_slow_partitions_do_not_delay_other_transactions(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    follower = patient.partition.replicas[1]
    topics = [f"slow-{number}" for number in range(4)]
    for topic in topics:
        await patient.create([leader, follower], topic=topic)
    slow = [await begun(patient, leader, f"to-{topic}", topic) for topic in topics]
    prompt = await begun(patient, leader, "prompt", "u")
    requests = markers_seen(patient, leader)
    for number, producer in enumerate(slow, start=1):
        assert await producer.end() == ErrorCode.NONE
        await patient.until(lambda number=number: len(requests) == number)
        patient.clock.advance_timeouts(SLOW_MS)
    assert await prompt.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert requests == [*([topic] for topic in topics), ["u"]]
    for producer in slow:
        assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    patient.let_go(leader)
    for producer in slow:
        await patient.until_state(producer, "CompleteCommit")


async def test_markers_for_a_slow_partition_follow_it_to_its_next_leader(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = [await begun(patient, leader, f"slow-{number}", "t") for number in range(2)]
    requests = markers_seen(patient, leader)
    for producer in slow:
        assert await producer.end() == ErrorCode.NONE
    await patient.until(lambda: requests)
    patient.clock.advance_timeouts(10_000)
    await patient.cluster.kill_broker(leader)
    for producer in slow:
        await patient.until_state(producer, "CompleteCommit")
    assert requests == [["t"]]
    assert patient.partition.leader != leader


async def test_adding_a_marker_takes_the_same_time_however_many_wait(patient: Transactions) -> None:
    leader, sender = await one_slow_partition(patient)
    requests = markers_seen(patient, leader)
    manager = manager_of(patient.cluster.nodes[sender].broker)
    coordinator, count = Coordinator(), 3_000
    manager.add(coordinator, markers_of(0, "t"))
    await patient.until(lambda: requests)
    patient.clock.advance_timeouts(SLOW_MS)
    for number in range(1, count):
        manager.add(coordinator, markers_of(number, "t", "u"))
    assert coordinator.checks < 10 * count
    await patient.until(lambda: len(coordinator.written) == count - 1)
    assert set(coordinator.written) == {("u", 0)}
    assert coordinator.checks < 10 * count
    patient.let_go(leader)
    await patient.until(lambda: len(coordinator.written) == 2 * count - 1)
    assert coordinator.checks < 20 * count
    assert hosted(patient, leader, "t").log_end_offset == count
    assert hosted(patient, leader, "u").log_end_offset == count - 1
    await manager.close()


async def test_kill_does_not_wait_for_slow_partitions(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = await begun(patient, leader, "slow", "t")
    prompt = await begun(patient, leader, "prompt", "u")
    assert await slow.end() == ErrorCode.NONE
    assert await prompt.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert sending_tasks() != []
    await patient.cluster.kill()
    assert sending_tasks() == []
