"""Produce with transactional batches: whose they are, and what their coordinator says before they are appended
(ReplicaManager.handleProduceAppend).

A batch that begins a transaction in its partition waits until the coordinator has confirmed that the partition is part
of it, or has added it (Produce 12 and later, transaction version 2). Meanwhile its connection is read no further, so
that batches stay in order, and the records are kept in memory of the request's own. If the client goes away they are
appended all the same. Leaves appending to `produce_append`, asking to `verification`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek_broker.apis.produce_append import (
    ATTRIBUTES_LOW_BYTE,
    FIRST_VERSION_WITH_IDS,
    MAGIC_POSITION,
    append,
    failed,
    is_one_batch,
)
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.transactions.core.transaction import Producer, TopicPartition
from odradek_broker.transactions.verification import VERIFICATION_ENABLE, Claim, Manner, Refusals
from odradek_log.verification_guard import NOT_REQUIRED, ONGOING, VerificationGuard
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.attributes import TRANSACTIONAL_BIT
from odradek_wire.records.batch import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from odradek_broker.apis.context import Context
    from odradek_broker.replication.partition import Partition

Outcome = ProduceResponse | Deferred[ProduceResponse] | None
"""As a handler returns it; None: there is no answer (acks=0)."""

RETRY_BACKOFF_MS = "add.partitions.to.txn.retry.backoff.ms"
RETRY_MAX_MS = "add.partitions.to.txn.retry.backoff.max.ms"

UNDECIDED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Not all producers try again after these. Missing replicas they all wait for, without asking for metadata."""


def is_transactional(request: ProduceRequest) -> bool:
    """Whether there are batches of transactions. As in Kafka, the first one for each partition is looked at."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if (
                records
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT  # what most have not, found without a call
                and is_transactional_batch(records)
            ):
                return True
    return False


def is_transactional_batch(records: Any) -> bool:
    return bool(
        records
        and len(records) >= HEADER_SIZE
        and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        and records[MAGIC_POSITION] == 2
    )


class Batch(NamedTuple):
    """A transactional batch of a producer, for a partition that is led here."""

    partition: Partition
    producer: Producer
    sequence: int

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic, self.partition.index


class Admission:
    """What becomes of a request's transactional batches: appended with a verification, or refused before that."""

    __slots__ = ("_manner", "guards", "refused")

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self.guards: dict[TopicPartition, VerificationGuard] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}

    def of(self, partition: Partition) -> VerificationGuard | None:
        """What a batch for this partition is appended with."""
        return self.guards.get((partition.topic, partition.index))

    def refusal(self, partition: Partition) -> ProduceResponse.PartitionProduceResponse | None:
        """The answer for a partition whose batch is refused."""
        error = self.refused.get((partition.topic, partition.index))
        if error is None:
            return None
        words = None
        concurrent = error == ErrorCode.CONCURRENT_TRANSACTIONS and self._manner is not Manner.ADD
        if concurrent or error in UNDECIDED:
            words = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        elif error == ErrorCode.INVALID_TXN_STATE:
            words = "Partition was not added to the transaction"
        return ProduceResponse.PartitionProduceResponse(partition.index, error, -1, error_message=words)


def handle(ctx: Context, request: ProduceRequest) -> Outcome:
    """A request that has a transactional id or transactional batches."""
    if not is_transactional(request):
        return append(ctx, request)
    name = request.transactional_id
    if name is None or not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _refuse(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    batches = _batches(ctx, request)
    if len({batch.producer for batch in batches}) > 1:
        words = "Transactional records contained more than one producer ID"
        return _refuse(ctx, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, words)
    return _Admitting(ctx, request, batches).begin()


def _refuse(ctx: Context, request: ProduceRequest, error: ErrorCode, words: str | None = None) -> Outcome:
    """The request as a whole."""
    if request.acks == 0:
        ctx.connection.close()
    return failed(ctx, request, error, words)


def _batches(ctx: Context, request: ProduceRequest) -> list[Batch]:
    """Those that a coordinator is asked about. What is wrong with others `append` finds out."""
    found = []
    by_id = ctx.api_version >= FIRST_VERSION_WITH_IDS
    partitions = ctx.broker.partitions
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if not is_transactional_batch(records) or not is_one_batch(records):
                continue
            key: Any = topic.topic_id if by_id else topic.name
            partition = partitions.get_by_id(key, data.index) if by_id else partitions.get(key, data.index)
            if partition is None or not ctx.may_topic(Operation.WRITE, partition.topic):
                continue
            header = read_header(records)
            if header.producer_id >= 0:
                producer = Producer(header.producer_id, header.producer_epoch)
                found.append(Batch(partition, producer, header.base_sequence))
    return found


class _Admitting:
    """One request on its way to `append`."""

    def __init__(self, ctx: Context, request: ProduceRequest, batches: list[Batch]) -> None:
        self._ctx = ctx
        self._request = request
        self._batches = batches
        self._manner = Manner.of_produce(ctx.api_version)
        self._admission = Admission(self._manner)
        self._began_ms = ctx.now_ms
        self._appended = False
        self._outcome: Outcome = None
        self._answer: Deferred[Any] | None = None
        self._held_bytes = 0

    def begin(self) -> Outcome:
        self._ask()
        if self._appended:
            return self._outcome
        self._hold_records()
        self._answer = Deferred()
        return self._answer

    def _ask(self) -> None:
        self._admission = Admission(self._manner)
        places = self._begin_verifications()
        if not places:
            return self._append()
        assert self._request.transactional_id is not None
        claim = Claim(self._request.transactional_id, self._batches[0].producer, tuple(places), self._manner)
        refusals = self._ctx.broker.verifier.ask(claim)
        if isinstance(refusals, Deferred):
            return refusals.when_done(lambda asked: self._later(lambda: self._told(asked.result())))
        return self._told(refusals)

    def _begin_verifications(self) -> list[TopicPartition]:
        """The partitions that the coordinator is to be asked about."""
        adds = self._manner is Manner.ADD
        admission = self._admission
        required = self._ctx.broker.config.boolean(VERIFICATION_ENABLE)
        places = []
        for batch in self._batches:
            place = batch.place
            if not adds and not required:
                admission.guards[place] = NOT_REQUIRED
                continue
            begun = batch.partition.begin_verification(*batch.producer, batch.sequence, adds=adds)
            if isinstance(begun, ErrorCode):
                admission.refused[place] = begun
            else:
                admission.guards[place] = begun if required else NOT_REQUIRED
                if begun is not ONGOING:
                    places.append(place)
        return places

    def _told(self, refusals: Refusals) -> None:
        """By the coordinator."""
        self._admission.refused.update(refusals)
        if self._manner is Manner.ADD and ErrorCode.CONCURRENT_TRANSACTIONS in refusals.values():
            # The transaction before is about to be complete; for a client it would cost more to come again.
            broker = self._ctx.broker
            limit_ms = min(broker.config.integer(RETRY_MAX_MS), broker.config.integer("request.timeout.ms"))
            if self._ctx.now_ms - self._began_ms < limit_ms:
                backoff_ms = broker.config.integer(RETRY_BACKOFF_MS)
                broker.timers.call_later(backoff_ms, lambda: self._later(self._ask))
                return
        self._append()

    def _append(self) -> None:
        self._outcome = append(self._ctx, self._request, self._admission)
        self._appended = True

    # -- while the client waits -----------------------------------------------------------------------------------

    def _hold_records(self) -> None:
        """Out of the connection's buffer, which is used for others as soon as the handler has returned."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                records: Any = data.records
                if records is not None:
                    data.records = memoryview(bytearray(records))
                    self._held_bytes += len(records)
        self._ctx.connection.memory.take_anyway(self._held_bytes)

    def _later(self, step: Callable[[], None]) -> None:
        """Go on, perhaps to the end."""
        answer = self._answer
        if answer is None:  # nobody waits yet: `begin` sees what comes of it
            return step()
        try:
            step()
        except Exception as error:
            self._let_go()
            return answer.fail(error)
        if self._appended:
            self._let_go()
            answer.follow(self._outcome)
        return None

    def _let_go(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        self._ctx.connection.memory.give_back(held)
