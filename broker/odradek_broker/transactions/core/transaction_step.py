"""One step of a transaction coordinator: what comes in with every input, and what goes out.

Owns the vocabulary between the rules of transactions and the shell: settings, waiting answers, records to write, what
has to be settled once they are written, and markers to send. Leaves the rules to `transaction_rules`, and which step
follows from what to `transaction_shard`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from odradek_broker.coordination.core.step import CoordinatorEvent, Step, Token
from odradek_broker.transactions.core.transaction_metadata import Ending, Producer, TopicPartition
from odradek_broker.transactions.core.transaction_records import TransactionRecord
from odradek_broker.transactions.core.transaction_rules import NO_PRODUCER
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdResponse

Answer = InitProducerIdResponse | EndTxnResponse | ErrorCode
"""To InitProducerId, to EndTxn; to AddPartitionsToTxn (for all partitions of the transaction) and AddOffsetsToTxn."""


class Asked(Enum):
    """What a request asks for, and two versions of its API: the first one whose clients know PRODUCER_FENCED (older
    ones are told INVALID_PRODUCER_EPOCH, KIP-588), and the first one of clients whose transactions each have an epoch
    of its own (KIP-890), if that can be told: those have partitions added by brokers, and end with the epoch."""

    INIT = "InitProducerId", 4, None
    ADD_PARTITIONS = "AddPartitionsToTxn", 2, 4
    ADD_OFFSETS = "AddOffsetsToTxn", 2, None
    END = "EndTxn", 2, 5

    def __init__(self, api: str, fenced_from: int, grows_epochs_from: int | None) -> None:
        self.fenced_from = fenced_from
        self.grows_epochs_from = grows_epochs_from


@dataclass(frozen=True, slots=True)
class Caller:
    """A request that waits for its answer, and which answers it understands."""

    token: Token
    asked: Asked
    api_version: int

    @property
    def grows_epochs(self) -> bool:
        """Whether it comes from a client that takes part in transaction version 2."""
        first = self.asked.grows_epochs_from
        return first is not None and self.api_version >= first

    def answer(self, error: ErrorCode, producer: Producer = NO_PRODUCER) -> Answer:
        """`producer` is told by InitProducerId and EndTxn, the latter from version 5 on."""
        if error == ErrorCode.PRODUCER_FENCED and self.api_version < self.asked.fenced_from:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        match self.asked:
            case Asked.INIT:
                return InitProducerIdResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
            case Asked.END:
                return EndTxnResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
            case Asked.ADD_PARTITIONS | Asked.ADD_OFFSETS:
                return error


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions; the names are Kafka's."""

    max_timeout_ms: int = 15 * 60 * 1000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms: how often abandoned transactions are looked for.
    Here they are found at once, and looked at so often when they could not be aborted then."""


@dataclass(frozen=True, slots=True, eq=False)
class TransactionMarkers:
    """The markers of a decided transaction, one for each of its partitions. The shell writes them, and reports progress
    by `TransactionShard.markers_written` with this object; the markers of an earlier coordinator epoch are another."""

    transactional_id: str
    producer: Producer
    """Under transaction version 2 with the epoch that follows the transaction."""
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """For WriteTxnMarkers v2."""
    partitions: frozenset[TopicPartition]
    """At least one."""


@dataclass(slots=True, eq=False)
class Write:
    """Records of these transactional ids are under way: opaque to the shell, which hands it back to
    `TransactionShard.written`."""

    transactional_ids: tuple[str, ...]
    caller: Caller | None = None
    """Who waits for it, and has not been answered yet."""
    error: ErrorCode = ErrorCode.NONE
    timed_out: bool = False
    """It aborts an abandoned transaction."""
    producer: Producer = NO_PRODUCER
    """What the caller is told once it is written. An error: what it asked for begins with the end of a transaction."""


@dataclass(slots=True)
class TransactionStep(Step[TransactionRecord, Write]):
    """A step of the transaction coordinator. There is a `write` if, and only if, there are records; its outcome goes to
    `TransactionShard.written`."""

    markers: list[TransactionMarkers] = field(default_factory=list)
    ended: Ending | None = None
    """The decision of a transaction is in the log."""

    def respond(self, caller: Caller | None, error: ErrorCode, producer: Producer = NO_PRODUCER) -> None:
        """Complete a pending request; None: the coordinator acts without a request."""
        if caller is not None:
            self.responses.append((caller.token, caller.answer(error, producer)))

    def log_event(self, event: str, transactional_id: str, producer: Producer, *, notable: bool = False) -> None:
        facts = {
            "transactional_id": transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
        }
        self.events.append(CoordinatorEvent(event, facts, notable))


def write_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when its transaction could not be written; it must be an error that it knows."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
