"""Markers of decided transactions reach the leaders of their partitions, also when leaders and connections fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from broker.tests.conftest import TIMEOUT_S
from broker.tests.three_brokers import Connect
from broker.tests.transactions.marker_senders import (
    Coordinator,
    begun,
    hosted,
    local_write,
    manager_of,
    markers_of,
    markers_seen,
    sending_tasks,
)
from broker.tests.transactions.markers import marker, outcome
from broker.tests.transactions.producers import Transactions, undecided

from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.transactions.transaction_marker_channel_manager import (
    RETRY_MS,
)
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersResponse


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Transactions]:
    found = Transactions(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def until_without_time(condition: Callable[[], object]) -> None:
    """Wait for the condition without advancing the clock."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)


def is_open(trio: Transactions, broker: int) -> bool:
    return trio.hosted(broker).log.first_unstable_offset(trio.hosted(broker).log_end_offset) is not None


async def test_a_transaction_completes_when_another_broker_has_its_marker(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    assert is_open(trio, leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert not is_open(trio, leader)
    assert trio.hosted(leader).log_end_offset == 2


async def test_end_txn_is_answered_before_the_markers_are_written(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end(commit=False) == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "PrepareAbort")
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    await trio.until(adding.done)
    assert adding.result() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await trio.producer().init() == ErrorCode.CONCURRENT_TRANSACTIONS
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteAbort")
    assert [each.producer_id for each in trio.hosted(leader).log.aborted_transactions(0, 2)] == [producer.producer.id]


async def test_the_next_transaction_waits_for_the_markers_of_the_previous_one(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await until_without_time(lambda: trio.markers_refused)
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    assert not adding.done()
    trio.let_go(leader)
    trio.clock.advance_timeouts(RETRY_MS)
    await until_without_time(adding.done)
    assert adding.result() == ErrorCode.NONE
    assert await producer.state() == (ErrorCode.NONE, "Ongoing")


async def test_a_client_that_disconnects_while_it_waits_begins_nothing(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await until_without_time(lambda: trio.markers_refused)
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


async def test_a_request_that_waits_gets_not_coordinator_on_resignation(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    coordinator = await producer.coordinator()
    adding = asyncio.ensure_future(producer.add(("t", 0)))
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    trio.cluster.nodes[coordinator].broker.transaction_coordinator.resigned(0)
    assert await adding == ErrorCode.NOT_COORDINATOR


async def test_a_marker_is_sent_again_after_a_lost_connection(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_refused >= 3)
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert trio.hosted(leader).log_end_offset == 2


async def test_a_marker_follows_the_partition_to_its_next_leader(trio: Transactions) -> None:
    producer, leader = await undecided(trio, replicas=2)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_refused)
    await trio.cluster.kill_broker(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert trio.partition.leader != leader
    assert not is_open(trio, trio.partition.leader)


async def test_a_marker_waits_until_the_partition_has_a_leader(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
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
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    client: Any = await trio.client(leader)
    assert (await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)).responses[0].error_code == 0
    await trio.until_state(producer, "CompleteCommit")


async def test_a_partition_with_a_newer_producer_epoch_needs_no_marker(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    newer = marker(producer=producer.producer.id, epoch=producer.producer.epoch + 1)
    assert await outcome(await trio.client(leader), newer) == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")


async def test_markers_of_a_fenced_coordinator_are_abandoned(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    later = marker(producer=producer.producer.id, epoch=producer.producer.epoch, commit=True, coordinator_epoch=9)
    assert await outcome(await trio.client(leader), later) == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    trio.clock.advance_timeouts(60_000)
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    assert trio.hosted(leader).log_end_offset == 2


async def test_the_next_coordinator_sends_the_missing_markers(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    coordinator = await producer.coordinator()
    await trio.until(lambda: trio.state_at(coordinator).leader.isr == frozenset({0, 1, 2}))  # type: ignore[union-attr]
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_refused)
    await trio.cluster.kill_broker(coordinator)
    trio.let_go(leader)
    await trio.until_state(producer, "CompleteCommit")
    assert await producer.coordinator() != coordinator
    assert not is_open(trio, leader)
    (entry,) = trio.hosted(leader).log.producers
    assert entry.coordinator_epoch == trio.state_at(await producer.coordinator()).leader_epoch > 0


Redirect = Callable[[], Awaitable[int]]


def redirect_markers(monkeypatch: pytest.MonkeyPatch, trio: Transactions, broker: int, port: Redirect) -> None:
    """Redirect the connections for markers to this broker to another port."""
    connect, its_port = BrokerConnection.connect, trio.cluster.nodes[broker].port

    async def connect_elsewhere(host: str, found: int, name: str, timeout_s: float) -> BrokerConnection:
        if found == its_port and name.endswith("txn-marker-sender"):
            found = await port()
        return await connect(host, found, name, timeout_s)

    monkeypatch.setattr(BrokerConnection, "connect", connect_elsewhere)


async def test_unsent_markers_go_to_the_next_leader_immediately(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, leader = await undecided(trio, replicas=2)
    gathering = await begun(trio, leader, "gathering", "t")
    connecting: list[int] = []

    async def never() -> int:
        connecting.append(leader)
        await asyncio.Event().wait()
        return 0

    redirect_markers(monkeypatch, trio, leader, never)
    assert await first.end() == ErrorCode.NONE
    await trio.until(lambda: connecting)
    assert await gathering.end() == ErrorCode.NONE
    await trio.cluster.kill_broker(leader)
    async with asyncio.timeout(TIMEOUT_S):
        for producer in (first, gathering):
            await trio.until_state(producer, "CompleteCommit")
    assert connecting == [leader]
    await trio.until(lambda: not sending_tasks())
    new_leader = trio.partition.leader
    assert new_leader != leader
    assert trio.hosted(new_leader).log_end_offset == 4, "one marker for each record"


async def test_markers_without_a_response_go_to_the_next_leader(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, leader = await undecided(trio, replicas=2)
    taken: list[bytes] = []
    streams: list[asyncio.StreamWriter] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.append(writer)
        while data := await reader.read(1000):
            taken.append(data)

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:

        async def silent() -> int:
            return int(server.sockets[0].getsockname()[1])

        redirect_markers(monkeypatch, trio, leader, silent)
        assert await producer.end() == ErrorCode.NONE
        await trio.until(lambda: taken)
        await trio.cluster.kill_broker(leader)
        async with asyncio.timeout(TIMEOUT_S):
            await trio.until_state(producer, "CompleteCommit")
        for writer in streams:
            writer.close()
    assert len(streams) == 1
    new_leader = trio.partition.leader
    assert trio.hosted(new_leader).log_end_offset == 2


async def test_markers_in_flight_are_not_sent_again_on_other_changes(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    requests = markers_seen(trio, leader, first_ms=1_000_000)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: requests)
    await trio.create([trio.other_than(leader)], topic="u")
    trio.clock.advance_timeouts(10_000)
    assert await producer.state() == (ErrorCode.NONE, "PrepareCommit")
    assert requests == [["t"]]
    trio.clock.advance_timeouts(1_000_000)
    await trio.until_state(producer, "CompleteCommit")
    assert requests == [["t"]]
    assert trio.hosted(leader).log_end_offset == 2


async def test_connecting_to_a_leader_takes_ten_seconds_at_most(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, _ = await undecided(trio)
    connect = BrokerConnection.connect
    limits_s: list[float] = []

    async def note(host: str, port: int, name: str, timeout_s: float) -> BrokerConnection:
        if name.endswith("txn-marker-sender"):
            limits_s.append(timeout_s)
            if len(limits_s) == 1:
                raise BrokerConnectionError("no broker answers")
        return await connect(host, port, name, timeout_s)

    monkeypatch.setattr(BrokerConnection, "connect", note)
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert len(limits_s) == 2
    assert max(limits_s) <= 10


async def test_a_late_connection_does_not_send_markers_of_moved_partitions(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, sender = 0, 1
    await trio.create([leader])
    await trio.create([leader], topic="u")
    requests = markers_seen(trio, leader)
    connecting, connected = asyncio.Event(), asyncio.Event()

    async def late() -> int:
        connecting.set()
        await connected.wait()
        return trio.cluster.nodes[leader].port

    redirect_markers(monkeypatch, trio, leader, late)
    broker = trio.cluster.nodes[sender].broker
    manager, coordinator = manager_of(broker), Coordinator()
    manager.add(coordinator, markers_of(0, "t", "u"))
    await connecting.wait()
    client: Any = await trio.client(leader)
    assert (await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)).responses[0].error_code == 0
    await trio.until(lambda: broker.image.partition("t", 0) is None)
    manager.metadata_changed()
    assert coordinator.written == [("t", 0)]
    connected.set()
    await trio.until(lambda: len(coordinator.written) == 2)
    assert coordinator.written == [("t", 0), ("u", 0)]
    assert requests == [["u"]]
    await manager.close()


async def test_a_marker_with_an_unknown_error_code_is_sent_again(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, sender = 0, 1
    await trio.create([leader])
    request, unknown = BrokerChannel.request, [12345]

    async def respond(self: BrokerChannel, *sent: Any) -> Any:
        response = await request(self, *sent)
        if isinstance(response, WriteTxnMarkersResponse) and unknown:
            response.markers[0].topics[0].partitions[0].error_code = unknown.pop()
        return response

    monkeypatch.setattr(BrokerChannel, "request", respond)
    manager, coordinator = manager_of(trio.cluster.nodes[sender].broker), Coordinator()
    with structlog.testing.capture_logs() as logged:
        manager.add(coordinator, markers_of(0, "t"))
        await trio.until(lambda: coordinator.written)
    assert [(line["event"], line["error"]) for line in logged if line["log_level"] in ("warning", "error")] == [
        ("marker not written; retrying", "UNKNOWN_SERVER_ERROR")
    ]
    await manager.close()


async def test_idle_connections_to_a_dead_broker_are_closed(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, leader = await undecided(trio, replicas=2)
    connect, connection_lost, kept = (
        BrokerConnection.connect,
        BrokerConnection.connection_lost,
        list[BrokerConnection](),
    )

    async def keep(host: str, port: int, name: str, timeout_s: float) -> BrokerConnection:
        connection = await connect(host, port, name, timeout_s)
        if name.endswith("txn-marker-sender"):
            kept.append(connection)
        return connection

    def lost(self: BrokerConnection, error: Exception | None) -> None:
        # A host that loses power closes no connections.
        if self not in kept:
            connection_lost(self, error)

    monkeypatch.setattr(BrokerConnection, "connect", keep)
    monkeypatch.setattr(BrokerConnection, "connection_lost", lost)
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert [connection.closed for connection in kept] == [False]
    await trio.cluster.kill_broker(leader)
    await trio.until(lambda: kept[0].closed)


async def test_an_exception_of_one_coordinator_does_not_affect_the_others(
    trio: Transactions,
) -> None:
    leader, sender = 0, 1
    await trio.create([leader])
    requests = markers_seen(trio, leader)
    manager = manager_of(trio.cluster.nodes[sender].broker)
    coordinators = [Coordinator(), Coordinator(), Coordinator(failures=2), Coordinator(), Coordinator()]
    with structlog.testing.capture_logs() as logged:
        for number, coordinator in enumerate(coordinators):
            manager.add(coordinator, markers_of(number, "t"))
        await trio.until(lambda: all(coordinator.written for coordinator in coordinators))
    assert [coordinator.written for coordinator in coordinators] == [[("t", 0)]] * 5
    assert requests == [["t"], ["t"] * 4]
    assert hosted(trio, leader, "t").log_end_offset == 5, "a marker that is written is not sent again"
    failed = [entry for entry in logged if entry["log_level"] == "error"]
    assert [entry["transactional_id"] for entry in failed] == ["tx-2"]
    assert isinstance(failed[0]["exc_info"], ZeroDivisionError)
    await manager.close()


async def test_a_marker_whose_append_fails_does_not_stop_other_retries(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([0])
    await trio.create([0], topic="u")
    broker, tried = trio.cluster.nodes[0].broker, Counter[str]()
    write = local_write(broker)

    def fail(topic: str, index: int, marker: Any) -> ErrorCode | Deferred[ErrorCode]:
        tried[topic] += 1
        if tried[topic] == 1:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if topic == "t" and tried[topic] == 2:
            raise ZeroDivisionError("planted")
        return write(topic, index, marker)

    manager = manager_of(broker, fail)
    failing, also_failing, sound = Coordinator(), Coordinator(failures=1), Coordinator()
    manager.add(failing, markers_of(0, "t"))
    manager.add(also_failing, markers_of(1, "u"))
    manager.add(sound, markers_of(2, "u"))
    trio.clock.advance_timeouts(RETRY_MS)
    assert (failing.written, also_failing.written, sound.written) == ([], [], [("u", 0)])
    trio.clock.advance_timeouts(RETRY_MS)
    assert (failing.written, also_failing.written, sound.written) == ([("t", 0)], [("u", 0)], [("u", 0)])
    assert hosted(trio, 0, "t").log_end_offset == 1
    assert hosted(trio, 0, "u").log_end_offset == 2
    await manager.close()


async def test_a_marker_whose_replication_fails_is_appended_again(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([0])
    broker, failing = trio.cluster.nodes[0].broker, Deferred[ErrorCode]()
    write, outcomes = local_write(broker), [failing]
    coordinator = Coordinator()
    manager = manager_of(broker, lambda *marker: outcomes.pop() if outcomes else write(*marker))
    manager.add(coordinator, markers_of(0, "t"))
    failing.fail(ZeroDivisionError("planted"))
    assert coordinator.written == []
    trio.clock.advance_timeouts(RETRY_MS)
    assert coordinator.written == [("t", 0)]
    await manager.close()


async def test_a_killed_coordinator_sends_no_more_markers(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.refuse_markers(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_refused)
    await trio.cluster.kill()
    assert sending_tasks() == []
