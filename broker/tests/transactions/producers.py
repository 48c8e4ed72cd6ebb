"""A transactional producer that sends single requests, and a cluster of three brokers for it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.tests.conftest import produce_request
from broker.tests.three_brokers import Connect, Trio

from odradek_broker.network.interceptors import Disconnect
from odradek_broker.replication.partition import Partition
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek_wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.records.builder import BatchBuilder

ID = "tx"
TRANSACTION_KEY = 1
TRANSACTION_STATE = "__transaction_state"
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
ClientOf = Callable[[int], Awaitable[Any]]


class TransactionalProducer:
    """A client before transaction version 2, which looks up its coordinator before each request."""

    def __init__(self, client_of: ClientOf, ask_first: Callable[[], int], transactional_id: str = ID) -> None:
        self._client_of = client_of
        self._ask_first = ask_first
        self.transactional_id = transactional_id
        self.producer = Producer(-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    async def coordinator(self) -> int:
        """The id of the coordinator's broker; -1 if there is none."""
        client = await self._client_of(self._ask_first())
        request = FindCoordinatorRequest(self.transactional_id, TRANSACTION_KEY)
        return int((await client.ask(request, 3)).node_id)

    async def _ask(self, request: Any, version: int) -> Any:
        """The coordinator's response; None if there is no coordinator, or if it closes the connection."""
        coordinator = await self.coordinator()
        if coordinator == -1:
            return None
        try:
            return await (await self._client_of(coordinator)).ask(request, version)
        except (ConnectionError, EOFError, KeyError):
            return None

    async def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        answer = await self._ask(InitProducerIdRequest(self.transactional_id, timeout_ms), 4)
        if answer is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not answer.error_code:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        return ErrorCode(answer.error_code)

    def to_add(self, *partitions: tuple[str, int]) -> AddPartitionsToTxnRequest:
        """The request, for version 3."""
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name, [index]) for name, index in partitions]
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=topics,
        )

    async def add(self, *partitions: tuple[str, int]) -> ErrorCode:
        """The error of all these partitions."""
        answer = await self._ask(self.to_add(*partitions), 3)
        if answer is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = {
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        (error,) = found
        return ErrorCode(error)

    async def produce(self, leader: int, topic: str = "t", partition: int = 0, acks: int = -1) -> ErrorCode:
        """Produce one record."""
        topic_partition = (topic, partition)
        builder = BatchBuilder(
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=self._sequences.setdefault(topic_partition, 0),
            is_transactional=True,
        )
        builder.append(int(time.time() * 1000), None, b"v")
        records = bytes(builder.build())
        request = produce_request(topic, records, partition, acks, transactional_id=self.transactional_id)
        answer = await (await self._client_of(leader)).ask(request, 9)
        (outcome,) = answer.responses[0].partition_responses
        if not outcome.error_code:
            self._sequences[topic_partition] += 1
        return ErrorCode(outcome.error_code)

    async def end(self, commit: bool = True) -> ErrorCode:
        answer = await self._ask(EndTxnRequest(self.transactional_id, *self.producer, commit), 3)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else ErrorCode(answer.error_code)

    async def state(self) -> tuple[ErrorCode, str]:
        """The state in the response of DescribeTransactions."""
        answer = await self._ask(DescribeTransactionsRequest([self.transactional_id]), 0)
        if answer is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ""
        (found,) = answer.transaction_states
        return ErrorCode(found.error_code), found.transaction_state


class Transactions(Trio):
    """Three brokers, with a replica of the one partition of `__transaction_state` on each."""

    def __init__(self, path: Path, connect: Connect, settings: dict[str, str] | None = None) -> None:
        state = {
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
        }
        super().__init__(path, connect, {**state, **(settings or {})})
        self._clients: dict[int, Any] = {}
        self.markers_refused = 0
        """The number of WriteTxnMarkers requests that were refused."""

    def producer(self, transactional_id: str = ID) -> TransactionalProducer:
        return TransactionalProducer(self.client, lambda: min(self.cluster.nodes), transactional_id)

    async def until_answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Retry while the error is retriable; the clock of timeouts moves with each attempt."""
        while True:
            answer = await ask()
            if (answer[0] if isinstance(answer, tuple) else answer) not in RETRIED:
                return answer
            self.clock.advance_timeouts(1)

    async def until_state(self, producer: TransactionalProducer, state: str) -> None:
        while (await producer.state())[1] != state:
            self.clock.advance_timeouts(1)

    def refuse_markers(self, broker: int) -> None:
        """Close the connection of every WriteTxnMarkers request to this broker, until `let_go`."""

        def judge(ctx: Any, request: Any) -> Disconnect | None:
            if ctx.api_key != ApiKey.WRITE_TXN_MARKERS:
                return None
            self.markers_refused += 1
            return Disconnect()

        self.cluster.nodes[broker].broker.interceptors.before_handle.append(judge)

    def state_at(self, broker: int) -> Partition:
        found = self.cluster.nodes[broker].broker.partitions.get(TRANSACTION_STATE, 0)
        assert found is not None
        return found

    def other_than(self, *brokers: int) -> int:
        return next(broker for broker in sorted(self.cluster.nodes) if broker not in brokers)


async def undecided(trio: Transactions, replicas: int = 1, **configs: str) -> tuple[TransactionalProducer, int]:
    """Begin a transaction with one record; return the producer, and the leader of the partition, which is not the
    coordinator."""
    producer = trio.producer()
    coordinator = await producer.coordinator()
    leader = trio.other_than(coordinator)
    others = [broker for broker in (0, 1, 2) if broker not in (leader, coordinator)]
    await trio.create([leader, *others][:replicas], **configs)
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.add(("t", 0))) == ErrorCode.NONE
    assert await trio.until_answered(lambda: producer.produce(leader)) == ErrorCode.NONE
    return producer, leader
