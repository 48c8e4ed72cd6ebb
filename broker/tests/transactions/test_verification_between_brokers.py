"""A partition and the coordinator that it asks on two brokers: one request at a time, and what becomes of questions
that meet or get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.conftest import TIMEOUT_S
from broker.tests.test_replication import Connect
from broker.tests.transactions.producers import TransactionalProducer, Transactions

from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_broker.network.interceptors import Delay, Disconnect, Fail, Verdict
from odradek_broker.transactions.core.transaction import Producer
from odradek_broker.transactions.verification import CONNECT_S_MAX, Claim, Manner, Refusals, Verifier, _Line
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

HELD_MS = 500


class Pair:
    """Topic t on one broker, the transaction coordinator of everybody on another."""

    def __init__(self, brokers: Transactions) -> None:
        self.brokers = brokers
        self.asked: list[list[str]] = []
        """The transactional ids of each request that reached the coordinator."""
        self.verdict: Verdict | None = None
        """What becomes of the next ones."""

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
            self.asked.append([each.transactional_id for each in request.transactions])
            return self.verdict

        self.brokers.cluster.nodes[self.coordinator].broker.interceptors.before_handle.append(judge)

    async def producer(self, name: str, *partitions: int) -> TransactionalProducer:
        """With an open transaction that has these partitions."""
        found = self.brokers.producer(name)
        assert await self.brokers.until_answered(found.init) == 0
        if partitions:
            places = [("t", index) for index in partitions]
            assert await self.brokers.until_answered(lambda: found.add(*places)) == 0
        return found

    def ask(self, name: str, producer: Producer) -> Deferred[Refusals]:
        verifier = self.brokers.cluster.nodes[self.leader].broker.verifier
        found = verifier.ask(Claim(name, producer, (("t", 0),), Manner.VERIFY_OR_ABORT))
        assert isinstance(found, Deferred)
        return found

    async def until_asked(self, count: int) -> None:
        await self.brokers.until(lambda: len(self.asked) == count)


@pytest.fixture
async def pair(tmp_path: Path, connect: Connect) -> AsyncIterator[Pair]:
    found = Pair(Transactions(tmp_path, connect))
    await found.start()
    yield found
    await found.brokers.cluster.stop(grace_ms=100)


async def test_the_coordinator_on_another_broker_decides_what_is_appended(pair: Pair) -> None:
    producer = await pair.producer("a", 0, 2)
    assert await producer.produce(pair.leader) == 0
    assert await producer.produce(pair.leader, partition=2) == 0
    assert await producer.produce(pair.leader, partition=1) == ErrorCode.INVALID_TXN_STATE
    assert await pair.brokers.until_answered(producer.end) == 0
    await pair.brokers.until_state(producer, "CompleteCommit")
    assert await producer.produce(pair.leader) == ErrorCode.INVALID_TXN_STATE


async def test_what_gathers_while_a_request_is_under_way_goes_out_in_one(pair: Pair) -> None:
    producers = {name: await pair.producer(name, 0) for name in "abc"}
    pair.verdict = Delay(HELD_MS)
    answers = [pair.ask("a", producers["a"].producer)]
    await pair.until_asked(1)
    answers += [pair.ask(name, producers[name].producer) for name in "bc"]
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert [await answer for answer in answers[:1]] == [{}]
    await pair.until_asked(2)
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert [await answer for answer in answers[1:]] == [{}, {}]
    assert pair.asked == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    ("epochs", "errors"),
    [
        ((0, 0), (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE)),
        ((0, 1), (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH)),
        ((1, 0), (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
async def test_of_two_questions_of_one_id_that_wait_the_newer_holds(
    pair: Pair, epochs: tuple[int, int], errors: tuple[ErrorCode, ErrorCode]
) -> None:
    producer = (await pair.producer("a", 0)).producer
    other = (await pair.producer("b", 0)).producer
    pair.verdict = Delay(HELD_MS)
    first = pair.ask("b", other)
    await pair.until_asked(1)
    answers = [pair.ask("a", producer._replace(epoch=epoch)) for epoch in epochs]
    decided = [answer.done for answer in answers]
    assert decided == ([True, False] if epochs[0] <= epochs[1] else [False, True])
    pair.verdict = None
    pair.brokers.clock.advance_timeouts(HELD_MS)
    await first
    found = [(await answer).get(("t", 0), ErrorCode.NONE) for answer in answers]
    assert tuple(found) == errors
    assert pair.asked == [["b"], ["a"]]


async def test_a_question_that_got_lost_is_asked_again_by_the_client_on_another_connection(pair: Pair) -> None:
    producer = await pair.producer("a", 0)
    pair.verdict = Disconnect()
    assert await producer.produce(pair.leader) == ErrorCode.NOT_ENOUGH_REPLICAS
    pair.verdict = None
    assert await producer.produce(pair.leader) == 0
    assert pair.asked == [["a"], ["a"]]


async def test_that_a_broker_may_not_ask_is_hidden_from_its_clients(pair: Pair) -> None:
    producer = await pair.producer("a", 0)
    pair.verdict = Fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert await producer.produce(pair.leader) == ErrorCode.INVALID_TXN_STATE
    pair.verdict = Fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert await producer.produce(pair.leader) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_whoever_leads_the_transaction_topic_next_is_asked_next(pair: Pair) -> None:
    producer = await pair.producer("a", 0, 1)
    assert await producer.produce(pair.leader) == 0
    await pair.brokers.cluster.stop_broker(pair.coordinator)
    assert await pair.brokers.until_answered(producer.state) == (ErrorCode.NONE, "Ongoing")
    async with asyncio.timeout(10):
        while (error := await producer.produce(pair.leader, partition=1)) == ErrorCode.NOT_ENOUGH_REPLICAS:
            pair.brokers.clock.advance_timeouts(1)
    assert error == 0


async def test_a_broker_that_ends_leaves_no_question_open(pair: Pair) -> None:
    producer = (await pair.producer("a", 0)).producer
    pair.verdict = Delay(HELD_MS)
    answers = [pair.ask("a", producer)]
    await pair.until_asked(1)
    answers.append(pair.ask("a", producer))
    await pair.brokers.cluster.nodes[pair.leader].broker.verifier.close()
    assert [await answer for answer in answers] == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}] * 2


async def test_a_transaction_whose_markers_are_late_does_not_delay_the_answer_for_others(pair: Pair) -> None:
    late, other = await pair.producer("late", 0), await pair.producer("other")
    assert await late.produce(pair.leader) == 0
    pair.brokers.hold_markers_back(pair.leader)
    assert await late.end() == 0
    assert await late.state() == (ErrorCode.NONE, "PrepareCommit")
    row = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    asked = [row(each.transactional_id, *each.producer, False, [topic("t", [1])]) for each in (late, other)]
    client = await pair.brokers.client(pair.coordinator)
    answer = await client.ask(AddPartitionsToTxnRequest(asked), 5)  # while the clock stands still
    assert {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    } == {"late": ErrorCode.CONCURRENT_TRANSACTIONS, "other": ErrorCode.NONE}


async def answers(*asked: Deferred[Refusals]) -> list[ErrorCode]:
    """NONE for who is part of the transaction."""
    async with asyncio.timeout(TIMEOUT_S):
        return [(await each).get(("t", 0), ErrorCode.NONE) for each in asked]


async def test_who_fails_with_its_answer_keeps_nobody_from_theirs(pair: Pair) -> None:
    producers = {name: (await pair.producer(name, 0)).producer for name in "abc"}

    def fail(_: Deferred[Refusals]) -> None:
        raise RuntimeError("as planned")

    pair.ask("a", producers["a"]).when_done(fail)
    others = [pair.ask(name, producers[name]) for name in "bc"]
    assert await answers(*others) == [ErrorCode.NONE] * 2
    assert pair.asked == [["a", "b", "c"]]
    assert await answers(pair.ask("a", producers["a"])) == [ErrorCode.NONE]


def told(codes: Iterable[tuple[str, int]]) -> AddPartitionsToTxnResponse:
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


async def test_an_answer_of_a_later_protocol_is_an_error_of_its_own_question_only(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exchange(self: Any, claims: Any) -> AddPartitionsToTxnResponse:
        return told([("a", 12345), ("b", 0)])

    monkeypatch.setattr(_Line, "_exchange", exchange)
    asked = [pair.ask(name, Producer(1, 0)) for name in "abc"]
    expected = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION]
    assert await answers(*asked) == expected, "and who is left out asks again"


async def test_whatever_goes_wrong_with_a_request_its_questions_are_answered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exchange(self: Any, claims: Any) -> AddPartitionsToTxnResponse:
        raise RuntimeError("as planned")

    producers = {name: (await pair.producer(name, 0)).producer for name in "ab"}
    with monkeypatch.context() as patched:
        patched.setattr(_Line, "_exchange", exchange)
        asked = [pair.ask(name, producers[name]) for name in "ab"]
        assert await answers(*asked) == [ErrorCode.NETWORK_EXCEPTION] * 2
    assert await answers(pair.ask("a", producers["a"])) == [ErrorCode.NONE]


async def test_a_host_that_is_gone_is_waited_for_no_longer_than_a_connection_takes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def connect(host: str, port: int, name: str, timeout_s: float) -> Any:
        waited.append(timeout_s)
        raise BrokerConnectionError("nobody is there")

    monkeypatch.setattr(BrokerConnection, "connect", connect)
    assert await answers(pair.ask("a", Producer(1, 0))) == [ErrorCode.NETWORK_EXCEPTION]
    assert waited == [CONNECT_S_MAX]


async def test_what_waits_for_a_coordinator_that_has_moved_is_not_asked_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = {name: (await pair.producer(name, 0)).producer for name in "ab"}
    pair.verdict = Delay(HELD_MS)
    first = pair.ask("a", producers["a"])
    await pair.until_asked(1)
    waiting = pair.ask("b", producers["b"])
    monkeypatch.setattr(Verifier, "coordinator_of", lambda self, transactional_id: pair.leader)
    pair.brokers.clock.advance_timeouts(HELD_MS)
    assert await answers(first, waiting) == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    assert pair.asked == [["a"]]
