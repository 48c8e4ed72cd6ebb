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

from odradek_broker.coordinators.marker_sender import PROMPT_MS
from odradek_broker.coordinators.markers import RETRY_MS
from odradek_broker.interceptors import Delay
from odradek_broker.partition import Partition
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


@pytest.fixture
async def patient(tmp_path: Path, connect: Connect) -> AsyncIterator[Transactions]:
    """Three brokers that count a follower as in sync, however long it fetches nothing."""
    forever = {"replica.lag.time.max.ms": "100000000", "request.timeout.ms": "10000000"}
    found = Transactions(tmp_path, connect, forever)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def one_slow_partition(trio: Transactions) -> tuple[int, int]:
    """Topic t on two brokers of which the second one does not follow, topic u on the first one alone. Which that is,
    and the coordinator, who is neither."""
    coordinator = await trio.producer().coordinator()
    leader = trio.other_than(coordinator)
    follower = trio.other_than(coordinator, leader)
    await trio.create([leader, follower])
    await trio.create([leader], topic="u")
    trio.hold_back(leader, follower)
    return leader, coordinator


async def begun(trio: Transactions, leader: int, transactional_id: str, *topics: str) -> TransactionalProducer:
    """A producer with a record in each of the topics in its open transaction."""
    producer = trio.producer(transactional_id)
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    for topic in topics:
        assert await trio.until_answered(lambda topic=topic: producer.add((topic, 0))) == ErrorCode.NONE
        appended = hosted(trio, leader, topic).log_end_offset + 1
        producing = asyncio.ensure_future(producer.produce(leader, topic, acks=1))
        await trio.until(producing.done)
        assert producing.result() == ErrorCode.NONE
        assert hosted(trio, leader, topic).log_end_offset == appended
    return producer


def hosted(trio: Transactions, broker: int, topic: str) -> Partition:
    found = trio.cluster.nodes[broker].broker.partitions.get(topic, 0)
    assert found is not None
    return found


def markers_seen(trio: Transactions, broker: int, first_ms: int = 0) -> list[list[str]]:
    """Which topics the WriteTxnMarkers requests to this broker name, from now on; the first one takes so long."""
    seen: list[list[str]] = []

    def look(ctx: Any, request: Any) -> Delay | None:
        if ctx.api_key != ApiKey.WRITE_TXN_MARKERS:
            return None
        seen.append([topic.name for marker in request.markers for topic in marker.topics])
        return Delay(first_ms) if len(seen) == 1 else None

    trio.cluster.nodes[broker].broker.interceptors.before_handle.append(look)
    return seen


async def test_a_partition_that_is_slow_to_replicate_holds_up_no_other_transaction(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = [await begun(patient, leader, f"slow-{number}", "t") for number in range(3)]
    prompt = await begun(patient, leader, "prompt", "u")
    mixed = await begun(patient, leader, "mixed", "t", "u")
    requests = markers_seen(patient, leader)
    for producer in (slow[0], prompt, *slow[1:], mixed):
        assert await producer.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert patient.clock.monotonic_ms() < 10_000, "nobody waited for request.timeout.ms"
    for producer in (*slow, mixed):
        assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    # Whose partition is waited for already does not ask for it once more.
    patient.clock.advance_timeouts(10_000)
    assert requests == [["t"], ["u", "u"]]
    patient.let_go(leader)
    for producer in (*slow, mixed):
        await patient.until_state(producer, "CompleteCommit")
    assert hosted(patient, leader, "t").log_end_offset == 8, "each record, and each marker once"


async def test_a_transaction_whose_marker_went_with_one_that_is_slow_is_complete_before_it(
    patient: Transactions,
) -> None:
    leader, _ = await one_slow_partition(patient)
    first, prompt, last = [await begun(patient, leader, name, "u") for name in ("first", "prompt", "last")]
    slow = await begun(patient, leader, "slow", "t")
    requests = markers_seen(patient, leader, first_ms=PROMPT_MS // 2)
    for producer in (first, slow, prompt):
        assert await producer.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert await slow.state() == (ErrorCode.NONE, "PrepareCommit")
    # Its marker goes by itself now, and is waited for.
    await patient.until(lambda: len(requests) == 3)
    assert await last.end() == ErrorCode.NONE
    await patient.until_state(last, "CompleteCommit")
    patient.clock.advance_timeouts(10_000)
    assert requests == [["u"], ["t", "u"], ["t"], ["u"]]
    patient.let_go(leader)
    await patient.until_state(slow, "CompleteCommit")


async def test_slow_partitions_wait_each_by_itself_and_hold_up_no_other_transaction(patient: Transactions) -> None:
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
        patient.clock.advance_timeouts(PROMPT_MS)
    assert await prompt.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert requests == [*([topic] for topic in topics), ["u"]]
    for producer in slow:
        assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    patient.let_go(leader)
    for producer in slow:
        await patient.until_state(producer, "CompleteCommit")


async def test_markers_that_wait_for_a_slow_partition_follow_it_to_its_next_leader(patient: Transactions) -> None:
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


async def test_a_coordinator_that_is_killed_waits_for_no_slow_partition(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = await begun(patient, leader, "slow", "t")
    prompt = await begun(patient, leader, "prompt", "u")
    assert await slow.end() == ErrorCode.NONE
    assert await prompt.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert [task for task in asyncio.all_tasks() if "MarkerSender" in repr(task.get_coro())] != []
    await patient.cluster.kill()
    assert [task for task in asyncio.all_tasks() if "MarkerSender" in repr(task.get_coro())] == []


async def test_a_coordinator_that_is_killed_sends_nothing_more(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held)
    await trio.cluster.kill()
    assert [task for task in asyncio.all_tasks() if "MarkerSender" in repr(task.get_coro())] == []
