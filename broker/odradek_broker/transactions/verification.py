"""What partitions ask transaction coordinators before a transaction begins in them: is this partition part of it, or,
for clients of transaction version 2, let it be part of it. Kafka's AddPartitionsToTxnManager (KIP-890).

Owns finding the coordinator, one request at a time to each broker with all that has gathered for it meanwhile, and
which of two questions of one transactional id holds. A coordinator in this broker is asked without a socket. Leaves to
who asks what an answer means, and to the log whether a transaction that was confirmed is still open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek_broker.coordination.core.java_hash import partition_for
from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.logger import Logger
from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.transactions.core.transaction import Producer, TopicPartition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker

REQUEST_VERSION = 5
"""Of AddPartitionsToTxn between brokers: many transactions, and TRANSACTION_ABORTABLE among the answers."""

CONNECT_S_MAX = 10.0
"""Whoever waits behind a connection to a host that is gone may find its coordinator elsewhere by then."""

VERIFICATION_ENABLE = "transaction.partition.verification.enable"

Refusals = Mapping[TopicPartition, ErrorCode]
"""Of the partitions that are not part of the transaction; the others are."""


class Manner(Enum):
    """What a client can be told, and whether its transactions take in partitions as it writes to them."""

    VERIFY = "verify"
    """It does not know TRANSACTION_ABORTABLE."""
    VERIFY_OR_ABORT = "verify or abort"
    ADD = "add"

    @classmethod
    def of_produce(cls, version: int) -> Manner:
        return cls.ADD if version >= 12 else cls.VERIFY_OR_ABORT if version >= 11 else cls.VERIFY

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Manner:
        return cls.ADD if version >= 5 else cls.VERIFY_OR_ABORT if version >= 4 else cls.VERIFY


class Claim(NamedTuple):
    """A producer's word that these partitions are part of its open transaction."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    manner: Manner

    def refused(self, error: ErrorCode) -> Refusals:
        return dict.fromkeys(self.partitions, self._told(error))

    def answered(self, errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> Refusals:
        """By the coordinator, one by one."""
        return {place: self._told(error) for place, error in errors if error}

    def _told(self, error: ErrorCode) -> ErrorCode:
        """As clients know it."""
        if error == ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error == ErrorCode.TRANSACTION_ABORTABLE and self.manner is Manner.VERIFY:
            return ErrorCode.INVALID_TXN_STATE
        return error


class OwnCoordinator(Protocol):
    """The transaction coordinator in this broker, asked for a transactional id that it should have: it answers for
    itself whether it does, and has loaded it."""

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """One error for each partition, NONE if it is part of the open transaction (AddPartitionsToTxn v5,
        verify-only)."""

    def add(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | Deferred[ErrorCode]:
        """The error of all of them, NONE once the transaction has them."""


class Verifier:
    """`ask`; `close` it in the end."""

    def __init__(self, broker: Broker, own: Callable[[], OwnCoordinator]) -> None:
        """`own` finds this broker's coordinator, when there is something to ask it."""
        self._broker = broker
        self.own = own
        self.failures = 0
        """Partitions that were refused, as Kafka counts them."""
        self._lines: dict[int, _Line] = {}

    def ask(self, claim: Claim) -> Refusals | Deferred[Refusals]:
        """The coordinator's word. Who cannot be asked refuses everything, with an error that clients answer by trying
        again."""
        broker = self._broker
        leader = self.coordinator_of(claim.transactional_id)
        if leader == broker.node_id:
            return self._ask_own(claim)
        if broker.channels.endpoint(leader) is None:
            return self._counted(claim.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        line = self._lines.get(leader)
        if line is None:
            line = self._lines[leader] = _Line(self, broker, leader, self._counted)
        return line.ask(claim)

    def coordinator_of(self, transactional_id: str) -> int:
        """Its broker; -1 while nobody is."""
        topic = self._broker.image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return -1
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    def _counted(self, refusals: Refusals) -> Refusals:
        self.failures += len(refusals)
        return refusals

    def _ask_own(self, claim: Claim) -> Refusals | Deferred[Refusals]:
        coordinator = self.own()
        if claim.manner is not Manner.ADD:
            errors = coordinator.verify(claim.transactional_id, claim.producer, claim.partitions)
            return self._counted(claim.answered(errors.items()))
        error = coordinator.add(claim.transactional_id, claim.producer, claim.partitions)
        if not isinstance(error, Deferred):
            return self._counted(claim.refused(error)) if error else {}
        return error.map(lambda found: self._counted(claim.refused(found)) if found else {})

    async def close(self) -> None:
        """Ask nobody any more: when this returns, no task does. Who still waits is refused."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.close()


class _Question(NamedTuple):
    claim: Claim
    answer: Deferred[Refusals]
    counted: Callable[[Refusals], Refusals]
    log: Logger

    def settle(self, refusals: Refusals) -> None:
        """The first time counts. What goes wrong with whoever goes on then is no matter of the others that wait."""
        if self.answer.done:
            return
        try:
            self.answer.complete(self.counted(refusals))
        except Exception as error:
            name = self.claim.transactional_id
            self.log.error("who has asked a transaction coordinator failed", transactional_id=name, exc_info=error)

    def refuse(self, error: ErrorCode) -> None:
        self.settle(self.claim.refused(error))


class _Line:
    """The questions to one broker: what waits, at most one of a transactional id, and the one request in flight."""

    def __init__(
        self, verifier: Verifier, broker: Broker, coordinator: int, counted: Callable[[Refusals], Refusals]
    ) -> None:
        self._verifier = verifier
        self._broker = broker
        self._coordinator = coordinator
        self._counted = counted
        self._waiting: dict[str, _Question] = {}
        timeout_s = broker.config.integer("request.timeout.ms") / 1000
        self._channel = broker.channels.to(
            coordinator, "verification", timeout_s=timeout_s, connect_timeout_s=min(timeout_s, CONNECT_S_MAX)
        )
        self._task: asyncio.Task[None] | None = None

    def ask(self, claim: Claim) -> Deferred[Refusals]:
        """Of two questions of one transactional id that wait, the later one holds unless its epoch is older: a client
        has asked again, or somebody else has taken its place."""
        question = _Question(claim, Deferred(), self._counted, self._broker.log)
        other = self._waiting.get(claim.transactional_id)
        if other is not None and claim.producer.epoch < other.claim.producer.epoch:
            question.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            return question.answer
        self._waiting[claim.transactional_id] = question
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        if other is not None:
            again = claim.producer.epoch == other.claim.producer.epoch
            other.refuse(ErrorCode.NETWORK_EXCEPTION if again else ErrorCode.INVALID_PRODUCER_EPOCH)
        return question.answer

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._channel.close()
        _refuse_all(self._waiting, ErrorCode.NETWORK_EXCEPTION)

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked = self._take()
                if not asked:
                    continue
                try:
                    _deliver(asked, await self._exchange([question.claim for question in asked.values()]))
                except (BrokerConnectionError, ValueError) as error:
                    self._broker.log.warning(
                        "transaction coordinator cannot be asked", coordinator=self._coordinator, error=str(error)
                    )
                except Exception as error:
                    self._broker.log.error(
                        "asking a transaction coordinator failed", coordinator=self._coordinator, exc_info=error
                    )
                finally:
                    _refuse_all(asked, ErrorCode.NETWORK_EXCEPTION)  # whoever has no answer yet
        finally:
            self._task = None

    def _take(self) -> dict[str, _Question]:
        """What has gathered. Whose coordinator has moved meanwhile asks again, there."""
        gathered, self._waiting = self._waiting, {}
        asked = {}
        for name, question in gathered.items():
            if self._verifier.coordinator_of(name) == self._coordinator:
                asked[name] = question
            else:
                question.refuse(ErrorCode.NOT_COORDINATOR)
        return asked

    async def _exchange(self, claims: list[Claim]) -> AddPartitionsToTxnResponse:
        return await self._channel.request(_request(claims), REQUEST_VERSION, AddPartitionsToTxnResponse)


def _request(claims: list[Claim]) -> AddPartitionsToTxnRequest:
    request = AddPartitionsToTxnRequest()
    for claim in claims:
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for name, index in claim.partitions:
            topics.setdefault(name, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name)).partitions.append(index)
        request.transactions.append(
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                claim.transactional_id,
                claim.producer.id,
                claim.producer.epoch,
                claim.manner is not Manner.ADD,
                list(topics.values()),
            )
        )
    return request


def _deliver(asked: Mapping[str, _Question], response: AddPartitionsToTxnResponse) -> None:
    if response.error_code:
        # That this broker may not ask is nothing that clients should hear.
        error = ErrorCode(response.error_code)
        hidden = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refuse_all(asked, ErrorCode.INVALID_TXN_STATE if hidden else error)
    for result in response.results_by_transaction:
        question = asked.get(result.transactional_id)
        if question is not None:
            question.settle(
                question.claim.answered(
                    ((topic.name, each.partition_index), _known(each.partition_error_code))
                    for topic in result.topic_results
                    for each in topic.results_by_partition
                )
            )
    return None


def _known(code: int) -> ErrorCode:
    """Of one partition: that it is of a later protocol keeps the others from nothing."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _refuse_all(asked: Mapping[str, _Question], error: ErrorCode) -> None:
    for question in asked.values():
        question.refuse(error)
