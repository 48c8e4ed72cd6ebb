"""One step of the transaction coordinator: the outcome of one input.

Owns the vocabulary between the rules of transactions and the shell: settings, pending requests, writes, and markers to
send. Leaves the rules to `transaction_rules`, and which step follows an input to `transaction_shard`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from odradek_broker.coordination.core.step import CoordinatorEvent, DeferredResponse, Step
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition, TransactionOutcome
from odradek_broker.transactions.core.transaction_records import TransactionRecord
from odradek_broker.transactions.core.transaction_rules import NO_PRODUCER
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdResponse

TransactionResponse = InitProducerIdResponse | EndTxnResponse | ErrorCode
"""An `ErrorCode` for AddOffsetsToTxn, and for all partitions of a transaction in AddPartitionsToTxn."""


class TransactionApi(Enum):
    """An API of the transaction coordinator, with the versions in which its responses and effects change."""

    INIT_PRODUCER_ID = "InitProducerId", 4, None
    ADD_PARTITIONS = "AddPartitionsToTxn", 2, 4
    ADD_OFFSETS = "AddOffsetsToTxn", 2, None
    END_TXN = "EndTxn", 2, 5

    def __init__(self, api: str, fenced_from: int, epoch_bump_from: int | None) -> None:
        self.fenced_from = fenced_from
        """The first version whose clients know PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH (KIP-588)."""
        self.epoch_bump_from = epoch_bump_from
        """The first version of clients of transaction version 2, if there is one: brokers add partitions for them, and
        EndTxn increments the producer epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request whose response is pending."""

    deferred: DeferredResponse
    api: TransactionApi
    api_version: int

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether the client uses transaction version 2."""
        first = self.api.epoch_bump_from
        return first is not None and self.api_version >= first

    def response(self, error: ErrorCode, producer: Producer = NO_PRODUCER) -> TransactionResponse:
        """The response with an error that the client knows. InitProducerId and EndTxn v5 return the `producer`."""
        if error == ErrorCode.PRODUCER_FENCED and self.api_version < self.api.fenced_from:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        match self.api:
            case TransactionApi.INIT_PRODUCER_ID:
                return InitProducerIdResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
            case TransactionApi.END_TXN:
                return EndTxnResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
            case TransactionApi.ADD_PARTITIONS | TransactionApi.ADD_OFFSETS:
                return error


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions, with Kafka's names."""

    max_timeout_ms: int = 15 * 60 * 1000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms. Kafka looks for timed-out transactions this often;
    here they are aborted immediately, and an abort that is not possible is retried this often."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransactionMarkers:
    """The markers of a decided transaction, one for each of its partitions. The shell sends them, and calls
    `TransactionShard.markers_written` with this object, which thus identifies the transaction and the coordinator's
    epoch."""

    transactional_id: str
    producer: Producer
    """Under transaction version 2 its epoch is already incremented."""
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """For WriteTxnMarkers v2."""
    partitions: frozenset[TopicPartition]
    """At least one."""


@dataclass(slots=True, eq=False)
class TransactionWrite:
    """Records of these transactional ids that are being written. Opaque to the shell, which returns it to
    `TransactionShard.written`."""

    transactional_ids: tuple[str, ...]
    pending: PendingRequest | None = None
    """The request that waits for the write, until its response is sent."""
    error: ErrorCode = ErrorCode.NONE
    """The error in the response after a successful write: CONCURRENT_TRANSACTIONS if InitProducerId aborts the open
    transaction first."""
    timed_out: bool = False
    """Whether the write aborts a timed-out transaction."""
    producer: Producer = NO_PRODUCER
    """The producer in the response after a successful write."""


@dataclass(slots=True)
class TransactionStep(Step[TransactionRecord, TransactionWrite]):
    """A step of the transaction coordinator. There is a `write` if, and only if, there are records; its outcome goes to
    `TransactionShard.written`."""

    markers: list[TransactionMarkers] = field(default_factory=list)
    outcome: TransactionOutcome | None = None
    """The outcome of a transaction, when its decision is in the log."""

    def respond(self, pending: PendingRequest | None, error: ErrorCode, producer: Producer = NO_PRODUCER) -> None:
        """Respond to a request. If it is None, no client waits, because the coordinator acts on its own."""
        if pending is not None:
            self.responses.append((pending.deferred, pending.response(error, producer)))

    def log_event(self, event: str, transactional_id: str, producer: Producer, *, notable: bool = False) -> None:
        facts = {
            "transactional_id": transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
        }
        self.events.append(CoordinatorEvent(event, facts, notable))


def write_error(error: ErrorCode) -> ErrorCode:
    """The error for a client after a record could not be written, translated into one that every client knows."""
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
