"""The transaction coordinator in its broker: the partition of an id, loading after a crash, and NOT_COORDINATOR."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect, StartNode
from broker.tests.manual_clock import ManualClock
from broker.tests.transactions.markers import Only
from broker.tests.transactions.producers import (
    ID,
    TRANSACTION_KEY,
    TRANSACTION_STATE,
    TransactionalProducer,
    Transactions,
)

from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.producer_ids import Block, NoProducerIdsError, ProducerIds
from odradek_broker.security.authorizer import Operation
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_transactions import ListTransactionsRequest

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
REQUEST_TIMEOUT_MS = 30_000


def on(node: Node, connect: Connect, transactional_id: str = ID) -> TransactionalProducer:
    async def client(_: int) -> Any:
        return await connect(node)

    return TransactionalProducer(client, lambda: 0, transactional_id)


async def undecided(node: Node, connect: Connect) -> TransactionalProducer:
    """A producer with a record in its open transaction."""
    client = await connect(node)
    if "t" not in node.broker.image.topics:
        await client.create_topic("t")
    producer = on(node, connect)
    assert await producer.init() == ErrorCode.NONE
    assert await producer.add(("t", 0)) == ErrorCode.NONE
    assert await producer.produce(0) == ErrorCode.NONE
    return producer


def end_offset(node: Node) -> int:
    found = node.broker.partitions.get("t", 0)
    assert found is not None
    return found.log_end_offset


# -- one broker -------------------------------------------------------------------------------------------------------


async def test_the_first_find_coordinator_creates_the_transaction_topic(
    start_node: StartNode, connect: Connect
) -> None:
    node = await start_node(transaction_state_log_num_partitions="7", transaction_state_log_segment_bytes="12345678")
    client = await connect(node)
    found = await client.ask(FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=["a", "b"]), 4)
    assert {(each.key, each.error_code, each.port) for each in found.coordinators} == {
        (name, 0, node.port) for name in "ab"
    }
    topic = node.broker.image.topics[TRANSACTION_STATE]
    assert len(topic.partitions) == 7
    assert node.broker.image.topic_configs(TRANSACTION_STATE) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "12345678",
        "unclean.leader.election.enable": "false",
    }


async def test_find_coordinator_without_permission_creates_no_topic(node: Node, connect: Connect) -> None:
    node.broker.authorizer = Only(Operation.WRITE)
    answer = await (await connect(node)).ask(FindCoordinatorRequest(ID, TRANSACTION_KEY), 3)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert TRANSACTION_STATE not in node.broker.image.topics


async def test_a_transaction_completes_with_its_last_marker(node: Node, connect: Connect) -> None:
    """With one broker the completion is committed when the marker is."""
    producer = await undecided(node, connect)
    assert await producer.end() == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "CompleteCommit")
    assert end_offset(node) == 2
    assert await producer.add(("t", 0)) == ErrorCode.NONE


@pytest.mark.parametrize("crash", [True, False])
async def test_open_transactions_and_producers_survive_a_restart(
    start_node: StartNode, connect: Connect, crash: bool
) -> None:
    before = await start_node()
    producer = await undecided(before, connect)
    await (before.kill() if crash else before.stop())
    after = await start_node()
    assert after.ready
    again = on(after, connect)
    assert await again.state() == (ErrorCode.NONE, "Ongoing")
    again.producer = producer.producer
    assert await again.end() == ErrorCode.NONE
    assert end_offset(after) == 2
    assert await again.init() == ErrorCode.NONE
    assert again.producer == Producer(producer.producer.id, producer.producer.epoch + 1)


async def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(
    start_node: StartNode, connect: Connect
) -> None:
    clock = ManualClock(int(time.time() * 1000))
    node = await start_node(clock=clock)
    producer = await undecided(node, connect)
    clock.advance_timeouts(59_000)
    assert await producer.state() == (ErrorCode.NONE, "Ongoing")
    clock.advance_timeouts(1_001)
    assert await producer.state() == (ErrorCode.NONE, "CompleteAbort")
    assert end_offset(node) == 2
    assert await producer.end() == ErrorCode.PRODUCER_FENCED


async def test_unused_transactional_ids_expire(start_node: StartNode, connect: Connect) -> None:
    clock = ManualClock(int(time.time() * 1000))
    node = await start_node(clock=clock, transactional_id_expiration_ms=str(3 * DAY_MS))
    producer = on(node, connect)
    assert await producer.init() == ErrorCode.NONE
    clock.advance_wall(2 * DAY_MS)
    clock.advance_timeouts(HOUR_MS)
    assert await producer.state() == (ErrorCode.NONE, "Empty")
    clock.advance_wall(2 * DAY_MS)
    clock.advance_timeouts(HOUR_MS)
    assert await producer.state() == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")


async def test_transactional_ids_are_unknown_after_a_reset(node: Node, connect: Connect) -> None:
    producer = await undecided(node, connect)
    await node.reset({"t": 1})
    assert await producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.init() == ErrorCode.NONE
    assert producer.producer.epoch == 0


async def test_without_producer_ids_clients_get_a_retriable_error(node: Node, connect: Connect) -> None:
    async def allocate() -> Block:
        raise NoProducerIdsError("not now")

    node.broker.producer_ids = ProducerIds(allocate)
    assert await on(node, connect).init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    idempotent = await (await connect(node)).ask(InitProducerIdRequest(None, 0), 4)
    assert idempotent.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_the_empty_transactional_id_is_refused(node: Node, connect: Connect) -> None:
    client = await connect(node)
    await on(node, connect).init()
    await client.create_topic("t")
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])
    added = await client.ask(AddPartitionsToTxnRequest(v3_and_below_topics=[topic]), 3)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == (
        ErrorCode.INVALID_REQUEST
    )
    for request, version in (
        (InitProducerIdRequest("", 1000), 4),
        (AddOffsetsToTxnRequest("", 0, 0, "g"), 3),
        (EndTxnRequest("", 0, 0, True), 3),
    ):
        assert (await client.ask(request, version)).error_code == ErrorCode.INVALID_REQUEST


async def test_an_unknown_partition_prevents_the_addition_of_all_others(node: Node, connect: Connect) -> None:
    producer = on(node, connect)
    await producer.init()
    client = await connect(node)
    await client.create_topic("t", 2)
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        ID, *producer.producer, False, [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0, 5])]
    )
    answer = await client.ask(AddPartitionsToTxnRequest([transaction]), 4)
    (result,) = answer.results_by_transaction
    assert {
        each.partition_index: each.partition_error_code for each in result.topic_results[0].results_by_partition
    } == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await producer.state() == (ErrorCode.NONE, "Empty")
    assert await producer.add((TRANSACTION_STATE, 0)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_only_brokers_may_add_partitions_to_several_transactions(node: Node, connect: Connect) -> None:
    producer = on(node, connect)
    await producer.init()
    client = await connect(node)
    await client.create_topic("t")
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        ID, *producer.producer, False, [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])]
    )
    node.broker.authorizer = Only(Operation.WRITE, Operation.DESCRIBE)
    answer = await client.ask(AddPartitionsToTxnRequest([transaction]), 5)
    assert (answer.error_code, answer.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert await producer.add(("t", 0)) == ErrorCode.NONE


async def test_transactions_are_listed_by_state_and_pattern(node: Node, connect: Connect) -> None:
    await undecided(node, connect)
    other = on(node, connect, "other")
    await other.init()
    client = await connect(node)

    async def listed(request: ListTransactionsRequest) -> set[tuple[str, str]]:
        answer = await client.ask(request, 2)
        assert answer.error_code == ErrorCode.NONE
        return {(each.transactional_id, each.transaction_state) for each in answer.transaction_states}

    assert await listed(ListTransactionsRequest()) == {(ID, "Ongoing"), ("other", "Empty")}
    assert await listed(ListTransactionsRequest(["Ongoing"])) == {(ID, "Ongoing")}
    assert await listed(ListTransactionsRequest(transactional_id_pattern="ot.*")) == {("other", "Empty")}
    assert (await client.ask(ListTransactionsRequest(["Lost"]), 2)).unknown_state_filters == ["Lost"]
    refused = await client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    node.broker.authorizer = Only(Operation.WRITE)
    assert await listed(ListTransactionsRequest()) == set()
    # The client may not look up its coordinator, either.
    assert (await other.state())[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_that_failed_to_load_is_left_out_of_lists(
    node: Node, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b"]
    for name in names:
        assert await on(node, connect, name).init() == ErrorCode.NONE
    coordinators = node.broker.transaction_coordinator
    assert coordinators.partition_of("a") != coordinators.partition_of("b")
    kept = coordinators._runtime.find("a")
    assert not isinstance(kept, ErrorCode)
    client = await connect(node)
    listed = {}
    for state in (
        CoordinatorState.ACTIVE,
        CoordinatorState.UNCOMMITTED,
        CoordinatorState.FAILED,
        CoordinatorState.LOADING,
    ):
        monkeypatch.setattr(kept._coordinator.durable, "state", state)
        answer = await client.ask(ListTransactionsRequest(), 1)
        listed[state] = (answer.error_code, {each.transactional_id for each in answer.transaction_states})
    assert listed == {
        CoordinatorState.ACTIVE: (ErrorCode.NONE, {"a", "b"}),
        CoordinatorState.UNCOMMITTED: (ErrorCode.NONE, {"a", "b"}),
        CoordinatorState.FAILED: (ErrorCode.NONE, {"b"}),
        CoordinatorState.LOADING: (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, set()),
    }
    monkeypatch.setattr(kept._coordinator.durable, "state", CoordinatorState.ACTIVE)


async def held_at_its_end(node: Node, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> tuple[Producer, list[Any]]:
    """Decide a transaction, but do not send its markers: return them in a list, with their coordinator."""
    producer = await undecided(node, connect)
    held: list[Any] = []
    monkeypatch.setattr(TransactionMarkerChannelManager, "add", lambda self, *added: held.append(added))
    assert await producer.end() == ErrorCode.NONE
    return producer.producer, held


async def test_any_number_of_requests_may_wait_for_the_same_markers(
    node: Node, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, held = await held_at_its_end(node, connect, monkeypatch)
    completed: list[tuple[int, ErrorCode]] = []
    for number in range(500):
        answer = node.broker.transaction_coordinator.add_partitions(ID, producer, [("t", number % 20)])
        assert isinstance(answer, Deferred)
        answer.when_done(lambda done, number=number: completed.append((number, done.result())))
    ((coordinator, markers),) = held
    coordinator.markers_written(markers, markers.partitions)
    assert completed == [(number, ErrorCode.NONE) for number in range(500)], "in the order of the requests"
    transaction = coordinator.shard.transactions[ID]
    assert transaction.partitions == {("t", number) for number in range(20)}


async def test_a_fenced_producer_does_not_wait_for_markers(
    node: Node, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, _ = await held_at_its_end(node, connect, monkeypatch)
    add = node.broker.transaction_coordinator.add_partitions
    assert isinstance(add(ID, producer, [("t", 0)]), Deferred)
    assert add(ID, producer._replace(epoch=producer.epoch - 1), [("t", 0)]) == ErrorCode.PRODUCER_FENCED
    assert add(ID, Producer(producer.id + 1, 0), [("t", 0)]) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- several brokers --------------------------------------------------------------------------------------------------


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Transactions]:
    settings = {
        "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
        "replica.lag.time.max.ms": str(10 * REQUEST_TIMEOUT_MS),
        "transaction.state.log.min.isr": "2",
    }
    found = Transactions(tmp_path, connect, settings)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def initialized(trio: Transactions) -> tuple[TransactionalProducer, int]:
    """Return a producer, and the id of its coordinator's broker; the other brokers are in sync with it."""
    producer = trio.producer()
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    coordinator = await producer.coordinator()
    leader = trio.state_at(coordinator).leader
    assert leader is not None
    await trio.until(lambda: leader.isr == frozenset({0, 1, 2}))
    return producer, coordinator


async def test_the_next_coordinator_has_every_acknowledged_change(trio: Transactions) -> None:
    producer, coordinator = await initialized(trio)
    leader = trio.other_than(coordinator)
    await trio.create([leader])
    assert await trio.until_answered(lambda: producer.add(("t", 0))) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.produce(leader)) == ErrorCode.NONE
    await trio.cluster.kill_broker(coordinator)
    assert await trio.until_answered(producer.state) == (ErrorCode.NONE, "Ongoing")
    assert await trio.until_answered(producer.end) == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert trio.hosted(leader).log_end_offset == 2


async def test_other_brokers_return_not_coordinator(trio: Transactions) -> None:
    producer, coordinator = await initialized(trio)
    client = await trio.client(trio.other_than(coordinator))
    answer = await client.ask(EndTxnRequest(ID, *producer.producer, True), 3)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


async def test_nothing_is_decided_below_min_insync_replicas(trio: Transactions) -> None:
    producer, coordinator = await initialized(trio)
    for other in {0, 1, 2} - {coordinator}:
        await trio.cluster.kill_broker(other)
    end = trio.state_at(coordinator).log_end_offset
    assert await producer.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert trio.state_at(coordinator).log_end_offset == end


async def test_no_markers_are_sent_for_an_uncommitted_decision(trio: Transactions) -> None:
    """With too few replicas in sync, the next leader may not have the record of the decision."""
    producer, coordinator = await initialized(trio)
    await trio.create([coordinator])
    assert await trio.until_answered(lambda: producer.add(("t", 0))) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.produce(coordinator)) == ErrorCode.NONE
    trio.hold_back(coordinator)
    end = trio.state_at(coordinator).log_end_offset
    ending = asyncio.ensure_future(producer.end())
    await trio.until(lambda: trio.state_at(coordinator).log_end_offset > end)
    others = {0, 1, 2} - {coordinator}
    for other in others:
        await trio.cluster.kill_broker(other)
    await trio.cluster.stop_broker(coordinator, grace_ms=100)
    assert await ending == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await trio.cluster.start_broker(trio.static(coordinator))
    await trio.until(lambda: trio.state_at(coordinator).leader is not None)
    assert await producer.state() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")
    assert trio.hosted(coordinator).log_end_offset == 1
    assert trio.cluster.nodes[coordinator].ready
    for other in others:
        await trio.cluster.start_broker(trio.static(other))
    await trio.until_state(producer, "CompleteCommit")
    assert trio.hosted(coordinator).log_end_offset == 2


async def test_a_write_that_timed_out_may_still_take_effect(trio: Transactions) -> None:
    producer, coordinator = await initialized(trio)
    before = producer.producer
    trio.hold_back(coordinator)
    end = trio.state_at(coordinator).log_end_offset
    initializing = asyncio.ensure_future(producer.init())
    await trio.until(lambda: trio.state_at(coordinator).log_end_offset > end)
    assert not initializing.done()
    trio.clock.advance_timeouts(REQUEST_TIMEOUT_MS)
    assert await initializing == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    trio.let_go(coordinator)
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    assert producer.producer == Producer(before.id, before.epoch + 2)


async def test_pending_requests_get_not_coordinator_when_a_broker_stops(trio: Transactions) -> None:
    producer, coordinator = await initialized(trio)
    trio.hold_back(coordinator)
    end = trio.state_at(coordinator).log_end_offset
    initializing = asyncio.ensure_future(producer.init())
    await trio.until(lambda: trio.state_at(coordinator).log_end_offset > end)
    await trio.cluster.stop_broker(coordinator, grace_ms=100)
    assert await initializing == ErrorCode.NOT_COORDINATOR
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
