"""Markers of decided transactions find the leaders of their partitions, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import structlog
from broker.tests.conftest import TIMEOUT_S
from broker.tests.test_replication import Connect
from broker.tests.test_write_txn_markers import marker, outcome
from broker.tests.transactions.producers import TransactionalProducer, Transactions

from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_broker.network.interceptors import Delay
from odradek_broker.replication.partition import Partition
from odradek_broker.transactions import markers as markers_module
from odradek_broker.transactions.core.transaction import Producer, TopicPartition
from odradek_broker.transactions.core.transaction_step import MarkerWork
from odradek_broker.transactions.marker_sender import PROMPT_MS
from odradek_broker.transactions.markers import RETRY_MS, Markers
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


def sending_tasks() -> list[Any]:
    return [task for task in asyncio.all_tasks() if "MarkerSender" in repr(task.get_coro())]


Redirect = Callable[[], Awaitable[int]]


def redirect_markers(monkeypatch: pytest.MonkeyPatch, trio: Transactions, broker: int, port: Redirect) -> None:
    """Who connects to the broker to send it markers connects to this port."""
    connect, its_port = BrokerConnection.connect, trio.cluster.nodes[broker].port

    async def connect_elsewhere(host: str, found: int, name: str, timeout_s: float) -> BrokerConnection:
        if found == its_port and name.endswith("txn-marker-sender"):
            found = await port()
        return await connect(host, found, name, timeout_s)

    monkeypatch.setattr(BrokerConnection, "connect", connect_elsewhere)


async def test_markers_to_a_host_that_accepts_no_connection_go_to_the_next_leader_as_soon_as_it_is_known(
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
    assert trio.hosted(new_leader).log_end_offset == 4, "each record, and each marker once"


async def test_markers_that_a_host_took_and_never_answered_go_to_the_next_leader_as_soon_as_it_is_known(
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


async def test_what_the_leader_took_is_not_sent_again_when_other_metadata_changes(trio: Transactions) -> None:
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


async def test_a_connection_is_waited_for_ten_seconds_at_most(
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


class Owner:
    """Whose markers are sent by themselves, without a transaction. The first words that it is told fail."""

    def __init__(self, failures: int = 0) -> None:
        self.looked = 0
        self.written: list[TopicPartition] = []
        self.failures = failures

    @property
    def is_active(self) -> bool:
        self.looked += 1
        return True

    def markers_written(self, work: MarkerWork, partitions: Iterable[TopicPartition]) -> None:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("planted")
        self.written += partitions


def work(producer: int, *topics: str) -> MarkerWork:
    """Of a producer that no partition knows."""
    places = frozenset((topic, 0) for topic in topics)
    return MarkerWork(f"tx-{producer}", Producer(1_000_000 + producer, 0), 0, True, 0, places)


async def test_a_marker_that_comes_costs_no_look_at_those_that_wait(patient: Transactions) -> None:
    leader, coordinator = await one_slow_partition(patient)
    requests = markers_seen(patient, leader)
    markers = Markers(patient.cluster.nodes[coordinator].broker)
    owner, count = Owner(), 3_000
    markers.send(owner, work(0, "t"))
    await patient.until(lambda: requests)
    patient.clock.advance_timeouts(PROMPT_MS)
    for number in range(1, count):
        markers.send(owner, work(number, "t", "u"))
    assert owner.looked < 10 * count
    await patient.until(lambda: len(owner.written) == count - 1)
    assert set(owner.written) == {("u", 0)}
    assert owner.looked < 10 * count
    patient.let_go(leader)
    await patient.until(lambda: len(owner.written) == 2 * count - 1)
    assert owner.looked < 20 * count
    assert hosted(patient, leader, "t").log_end_offset == count
    assert hosted(patient, leader, "u").log_end_offset == count - 1
    await markers.close()


async def test_what_is_not_to_go_to_a_broker_any_more_is_not_sent_when_the_connection_comes_at_last(
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
    markers, owner = Markers(broker), Owner()
    markers.send(owner, work(0, "t", "u"))
    await connecting.wait()
    client: Any = await trio.client(leader)
    assert (await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)).responses[0].error_code == 0
    await trio.until(lambda: broker.image.partition("t", 0) is None)
    markers.metadata_changed()
    assert owner.written == [("t", 0)]
    connected.set()
    await trio.until(lambda: len(owner.written) == 2)
    assert owner.written == [("t", 0), ("u", 0)]
    assert requests == [["u"]]
    await markers.close()


async def test_no_connection_to_a_broker_that_is_gone_is_kept_for_later(
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
        # A host that loses its power does not say so.
        if self not in kept:
            connection_lost(self, error)

    monkeypatch.setattr(BrokerConnection, "connect", keep)
    monkeypatch.setattr(BrokerConnection, "connection_lost", lost)
    assert await producer.end() == ErrorCode.NONE
    await trio.until_state(producer, "CompleteCommit")
    assert [connection.closed for connection in kept] == [False]
    await trio.cluster.kill_broker(leader)
    await trio.until(lambda: kept[0].closed)


async def test_a_transaction_that_cannot_be_told_of_its_markers_keeps_no_other_from_being_told(
    trio: Transactions,
) -> None:
    leader, sender = 0, 1
    await trio.create([leader])
    requests = markers_seen(trio, leader)
    markers = Markers(trio.cluster.nodes[sender].broker)
    owners = [Owner(), Owner(), Owner(failures=2), Owner(), Owner()]
    with structlog.testing.capture_logs() as logged:
        for number, owner in enumerate(owners):
            markers.send(owner, work(number, "t"))
        await trio.until(lambda: all(owner.written for owner in owners))
    assert [owner.written for owner in owners] == [[("t", 0)]] * 5
    assert requests == [["t"], ["t"] * 4]
    assert hosted(trio, leader, "t").log_end_offset == 5, "whose marker is written is not sent again"
    failed = [entry for entry in logged if entry["log_level"] == "error"]
    assert [entry["transactional_id"] for entry in failed] == ["tx-2"]
    assert isinstance(failed[0]["exc_info"], ZeroDivisionError)
    await markers.close()


async def test_a_marker_whose_writing_fails_keeps_no_other_from_being_tried_again(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([0])
    await trio.create([0], topic="u")
    write, tried = markers_module.write_marker, Counter[str]()

    def fail(broker: Any, topic: str, index: int, marker: Any) -> ErrorCode | Deferred[ErrorCode]:
        tried[topic] += 1
        if tried[topic] == 1:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if topic == "t" and tried[topic] == 2:
            raise ZeroDivisionError("planted")
        return write(broker, topic, index, marker)

    monkeypatch.setattr(markers_module, "write_marker", fail)
    markers = Markers(trio.cluster.nodes[0].broker)
    failing, also_failing, sound = Owner(), Owner(failures=1), Owner()
    markers.send(failing, work(0, "t"))
    markers.send(also_failing, work(1, "u"))
    markers.send(sound, work(2, "u"))
    trio.clock.advance_timeouts(RETRY_MS)
    assert (failing.written, also_failing.written, sound.written) == ([], [], [("u", 0)])
    trio.clock.advance_timeouts(RETRY_MS)
    assert (failing.written, also_failing.written, sound.written) == ([("t", 0)], [("u", 0)], [("u", 0)])
    assert hosted(trio, 0, "t").log_end_offset == 1
    assert hosted(trio, 0, "u").log_end_offset == 2
    await markers.close()


async def test_a_marker_whose_replication_fails_is_written_again(
    trio: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([0])
    write, failing = markers_module.write_marker, Deferred[ErrorCode]()
    outcomes: list[ErrorCode | Deferred[ErrorCode]] = [failing]
    monkeypatch.setattr(markers_module, "write_marker", lambda *args: outcomes.pop() if outcomes else write(*args))
    markers, owner = Markers(trio.cluster.nodes[0].broker), Owner()
    markers.send(owner, work(0, "t"))
    failing.fail(ZeroDivisionError("planted"))
    assert owner.written == []
    trio.clock.advance_timeouts(RETRY_MS)
    assert owner.written == [("t", 0)]
    await markers.close()


async def test_a_coordinator_that_is_killed_waits_for_no_slow_partition(patient: Transactions) -> None:
    leader, _ = await one_slow_partition(patient)
    slow = await begun(patient, leader, "slow", "t")
    prompt = await begun(patient, leader, "prompt", "u")
    assert await slow.end() == ErrorCode.NONE
    assert await prompt.end() == ErrorCode.NONE
    await patient.until_state(prompt, "CompleteCommit")
    assert sending_tasks() != []
    await patient.cluster.kill()
    assert sending_tasks() == []


async def test_a_coordinator_that_is_killed_sends_nothing_more(trio: Transactions) -> None:
    producer, leader = await undecided(trio)
    trio.hold_markers_back(leader)
    assert await producer.end() == ErrorCode.NONE
    await trio.until(lambda: trio.markers_held)
    await trio.cluster.kill()
    assert sending_tasks() == []
