"""A partition leader that verifies transactions with a coordinator on another broker: one request at a time, and
transactions that meet in the queue or lose their response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import TIMEOUT_S
from broker.tests.three_brokers import Connect
from broker.tests.transactions.producers import TransactionalProducer, Transactions

from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.network.interceptors import Delay, Disconnect, Fail, Verdict
from odradek_broker.transactions.add_partitions_to_txn_manager import (
    CONNECT_TIMEOUT_S_MAX,
    AddPartitionsToTxnManager,
    PartitionErrors,
    TransactionSupportedOperation,
)
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

HELD_MS = 500


class Pair:
    """Topic t on one broker, the coordinator of all transactional ids on another."""

    def __init__(self, brokers: Transactions) -> None:
        self.brokers = brokers
        self.requests: list[list[str]] = []
        """The transactional ids of each request that reached the coordinator."""
        self.verdict: Verdict | None = None
        """The interceptor's verdict on the next requests."""

    async def start(self) -> None:
        await self.brokers.start()
        first = self.brokers.producer("first")
        await self.brokers.until_answered(first.init)
        self.coordinator = await first.coordinator()
        self.leader = self.brokers.other_than(self.coordinator)
        await self.brokers.create([self.leader], partitions=3)

        def judge(ctx: Any, request: Any) -> Verdict | None:
            if ctx.api_key != ApiKey.ADD_PARTITIONS_TO_TXN or ctx.api_version < 4:
                return None
            self.requests.append([each.transactional_id for each in request.transactions])
            return self.verdict

        self.brokers.cluster.nodes[self.coordinator].broker.interceptors.before_handle.append(judge)

    async def producer(self, name: str, *partitions: int) -> TransactionalProducer:
        """Return an initialized producer; if partitions are given, with an open transaction that has them."""
        found = self.brokers.producer(name)
        assert await self.brokers.until_answered(found.init) == 0
        if partitions:
            topic_partitions = [("t", index) for index in partitions]
            assert await self.brokers.until_answered(lambda: found.add(*topic_partitions)) == 0
        return found

    @property
    def manager(self) -> AddPartitionsToTxnManager:
        return self.brokers.cluster.nodes[self.leader].broker.add_partitions_to_txn_manager

    def verify(self, name: str, producer: Producer) -> Deferred[PartitionErrors]:
        operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
        errors = self.manager.add_or_verify(name, producer, [("t", 0)], operation)
        assert isinstance(errors, Deferred)
        return errors

    async def until_requested(self, count: int) -> None:
        await self.brokers.until(lambda: len(self.requests) == count)


@pytest.fixture
async def pair(tmp_path: Path, connect: Connect) -> AsyncIterator[Pair]:
    found = Pair(Transactions(tmp_path, connect))
    await found.start()
    yield found
    await found.brokers.cluster.stop(grace_ms=100)


async def test_the_coordinator_on_another_broker_decides_about_appends(pair: Pair) -> None:
    producer = await pair.producer("a", 0, 2)
    assert await producer.produce(pair.leader) == 0
    assert await producer.produce(pair.leader, partition=2) == 0
    assert await producer.produce(pair.leader, partition=1) == ErrorCode.INVALID_TXN_STATE
    assert await pair.brokers.until_answered(producer.end) == 0
    await pair.brokers.until_state(producer, "CompleteCommit")
    assert await producer.produce(pair.leader) == ErrorCode.INVALID_TXN_STATE


async def test_transactions_gather_while_a_request_is_in_flight(pair: Pair) -> None:
    producers = {name: await pair.producer(name, 0) for name in "abc"}
    pair.verdict = Delay(HELD_MS)
    pending = [pair.verify("a", producers["a"].producer)]
    await pair.until_requested(1)
    pending += [pair.verify(name, producers[name].producer) for name in "bc"]
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert [await each for each in pending[:1]] == [{}]
    await pair.until_requested(2)
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert [await each for each in pending[1:]] == [{}, {}]
    assert pair.requests == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    ("epochs", "errors"),
    [
        ((0, 0), (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE)),
        ((0, 1), (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH)),
        ((1, 0), (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
async def test_of_two_transactions_of_one_id_in_the_queue_the_newer_is_sent(
    pair: Pair, epochs: tuple[int, int], errors: tuple[ErrorCode, ErrorCode]
) -> None:
    producer = (await pair.producer("a", 0)).producer
    other = (await pair.producer("b", 0)).producer
    pair.verdict = Delay(HELD_MS)
    first = pair.verify("b", other)
    await pair.until_requested(1)
    pending = [pair.verify("a", producer._replace(epoch=epoch)) for epoch in epochs]
    decided = [each.done for each in pending]
    assert decided == ([True, False] if epochs[0] <= epochs[1] else [False, True])
    pair.verdict = None
    pair.brokers.clock.advance_timeouts(HELD_MS)
    await first
    found = [(await each).get(("t", 0), ErrorCode.NONE) for each in pending]
    assert tuple(found) == errors
    assert pair.requests == [["b"], ["a"]]


async def test_a_lost_response_is_an_error_after_which_clients_retry(pair: Pair) -> None:
    producer = await pair.producer("a", 0)
    pair.verdict = Disconnect()
    assert await producer.produce(pair.leader) == ErrorCode.NOT_ENOUGH_REPLICAS
    pair.verdict = None
    assert await producer.produce(pair.leader) == 0
    assert pair.requests == [["a"], ["a"]]


async def test_a_missing_permission_of_the_broker_is_hidden_from_clients(pair: Pair) -> None:
    producer = await pair.producer("a", 0)
    pair.verdict = Fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert await producer.produce(pair.leader) == ErrorCode.INVALID_TXN_STATE
    pair.verdict = Fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert await producer.produce(pair.leader) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_next_leader_of_the_transaction_topic_is_the_coordinator(pair: Pair) -> None:
    producer = await pair.producer("a", 0, 1)
    assert await producer.produce(pair.leader) == 0
    await pair.brokers.cluster.stop_broker(pair.coordinator)
    assert await pair.brokers.until_answered(producer.state) == (ErrorCode.NONE, "Ongoing")
    async with asyncio.timeout(10):
        while (error := await producer.produce(pair.leader, partition=1)) == ErrorCode.NOT_ENOUGH_REPLICAS:
            pair.brokers.clock.advance_timeouts(1)
    assert error == 0


async def test_close_completes_every_pending_verification(pair: Pair) -> None:
    producer = (await pair.producer("a", 0)).producer
    pair.verdict = Delay(HELD_MS)
    pending = [pair.verify("a", producer)]
    await pair.until_requested(1)
    pending.append(pair.verify("a", producer))
    await pair.manager.close()
    assert [await each for each in pending] == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}] * 2


async def test_after_close_a_verification_gets_a_retriable_error(pair: Pair) -> None:
    producer = (await pair.producer("a", 0)).producer
    await pair.manager.close()
    operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    errors = pair.manager.add_or_verify("a", producer, [("t", 0)], operation)
    assert errors == {("t", 0): ErrorCode.NETWORK_EXCEPTION}
    assert pair.requests == []


async def test_late_markers_of_a_transaction_do_not_delay_the_others(pair: Pair) -> None:
    late, other = await pair.producer("late", 0), await pair.producer("other")
    assert await late.produce(pair.leader) == 0
    pair.brokers.refuse_markers(pair.leader)
    assert await late.end() == 0
    assert await late.state() == (ErrorCode.NONE, "PrepareCommit")
    row = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    transactions = [row(each.transactional_id, *each.producer, False, [topic("t", [1])]) for each in (late, other)]
    client = await pair.brokers.client(pair.coordinator)
    answer = await client.ask(AddPartitionsToTxnRequest(transactions), 5)  # the clock of timeouts does not move
    assert {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    } == {"late": ErrorCode.CONCURRENT_TRANSACTIONS, "other": ErrorCode.NONE}


async def outcomes(*pending: Deferred[PartitionErrors]) -> list[ErrorCode]:
    """The error of partition t-0, NONE if it is part of the transaction."""
    async with asyncio.timeout(TIMEOUT_S):
        return [(await each).get(("t", 0), ErrorCode.NONE) for each in pending]


async def test_an_exception_of_one_caller_does_not_affect_the_others(pair: Pair) -> None:
    producers = {name: (await pair.producer(name, 0)).producer for name in "abc"}

    def fail(_: Deferred[PartitionErrors]) -> None:
        raise RuntimeError("planned")

    pair.verify("a", producers["a"]).when_done(fail)
    others = [pair.verify(name, producers[name]) for name in "bc"]
    assert await outcomes(*others) == [ErrorCode.NONE] * 2
    assert pair.requests == [["a", "b", "c"]]
    assert await outcomes(pair.verify("a", producers["a"])) == [ErrorCode.NONE]


def response_with(codes: Iterable[tuple[str, int]]) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(
                name,
                [response.AddPartitionsToTxnTopicResult("t", [response.AddPartitionsToTxnPartitionResult(0, code)])],
            )
            for name, code in codes
        ]
    )


async def test_an_unknown_error_code_affects_only_its_own_partition(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def respond(self: Any, *request: Any) -> AddPartitionsToTxnResponse:
        return response_with([("a", 12345), ("b", 0)])

    monkeypatch.setattr(BrokerChannel, "request", respond)
    pending = [pair.verify(name, Producer(1, 0)) for name in "abc"]
    expected = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION]
    assert await outcomes(*pending) == expected, "the client retries what the response leaves out"


async def test_an_exception_while_sending_completes_every_verification(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Any, *request: Any) -> AddPartitionsToTxnResponse:
        raise RuntimeError("planned")

    producers = {name: (await pair.producer(name, 0)).producer for name in "ab"}
    with monkeypatch.context() as patched:
        patched.setattr(BrokerChannel, "request", fail)
        pending = [pair.verify(name, producers[name]) for name in "ab"]
        assert await outcomes(*pending) == [ErrorCode.NETWORK_EXCEPTION] * 2
    assert await outcomes(pair.verify("a", producers["a"])) == [ErrorCode.NONE]


async def test_connecting_to_the_coordinator_takes_ten_seconds_at_most(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_s: list[float] = []

    async def connect(host: str, port: int, name: str, timeout_s: float) -> Any:
        timeouts_s.append(timeout_s)
        raise BrokerConnectionError("planned")

    monkeypatch.setattr(BrokerConnection, "connect", connect)
    assert await outcomes(pair.verify("a", Producer(1, 0))) == [ErrorCode.NETWORK_EXCEPTION]
    assert timeouts_s == [CONNECT_TIMEOUT_S_MAX]


async def test_a_waiting_transaction_is_not_sent_to_a_former_coordinator(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = {name: (await pair.producer(name, 0)).producer for name in "ab"}
    pair.verdict = Delay(HELD_MS)
    first = pair.verify("a", producers["a"])
    await pair.until_requested(1)
    waiting = pair.verify("b", producers["b"])
    monkeypatch.setattr(AddPartitionsToTxnManager, "coordinator_of", lambda self, transactional_id: pair.leader)
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert await outcomes(first, waiting) == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    assert pair.requests == [["a"]]
