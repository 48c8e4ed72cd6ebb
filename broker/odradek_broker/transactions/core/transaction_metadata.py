"""The metadata of one transactional id: its producer, and the state of its transaction (Kafka's TransactionMetadata).

Owns the data and its transitions: each returns new metadata and changes nothing. Leaves which request leads to which
transition, and its errors, to `transaction_rules`, and the format of records to `transaction_records`.

              add partitions            end                markers written
    EMPTY ───────────────────► ONGOING ─────► PREPARE_COMMIT ────────────► COMPLETE_COMMIT
      ▲                           │                                               │
      │ init                      └─────────► PREPARE_ABORT ─────────────► COMPLETE_ABORT
      │                                                                           │
      └── InitProducerId leads from EMPTY and COMPLETE_* to EMPTY; COMPLETE_* also leads directly to ONGOING

The facts are those of TransactionMetadata in Kafka 4.3 (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1

MAX_EPOCH = 0x7FFF
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""One more epoch is left to fence the producer."""

EPOCH_BUMP_FROM = 2
"""From this transaction version on, the end of a transaction increments the producer epoch (KIP-890)."""

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """The number is stored in records, the label is used by DescribeTransactions."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    """In Kafka, while a tombstone of the id is written. Unused here, but a filter of ListTransactions may name it."""
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"
    """In Kafka, while the coordinator begins to abort a transaction. Unused here too."""

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]


class TransactionOutcome(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its producer, or because a new producer was initialized with its transactional id."""
    TIMED_OUT = "timed_out"
    """Aborted by the coordinator, after the producer's transaction timeout."""


class Producer(NamedTuple):
    """A producer id and its epoch, which fences all earlier epochs."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The metadata of one transactional id. Times are of the wall clock, in milliseconds."""

    producer: Producer
    timeout_ms: int
    _: KW_ONLY
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions of the open transaction; none when it is complete."""
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition, usually the present one."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after a decided transaction that exhausts the epochs of the present one (KIP-890)."""
    last_epoch: int = NO_EPOCH
    """The epoch that the producer may still use if a response was lost. Not stored in the log, as in Kafka 4.3."""
    client_version: int = 0
    """The transaction version of the client that last added partitions or ended a transaction, or the version with
    which the coordinator aborted it (KIP-890)."""

    @staticmethod
    def new(producer_id: int, timeout_ms: int) -> TransactionMetadata:
        """Metadata of a new transactional id, before `initialize` sets its first epoch."""
        return TransactionMetadata(Producer(producer_id, NO_EPOCH), timeout_ms)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer.epoch >= LAST_CLIENT_EPOCH

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and is not complete."""
        return self.state not in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )

    @property
    def is_decided(self) -> bool:
        """Whether the transaction is committed or aborted, and its markers are not all written."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether a decided transaction is committed."""
        return self.state is TransactionState.PREPARE_COMMIT

    def initialize(self, producer: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Set the producer, and fence any earlier one. Only without an open transaction."""
        assert not self.is_open, "a transaction is open"
        return replace(
            self,
            producer=producer,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            start_ms=NO_TIME,
            updated_ms=now_ms,
            previous_producer_id=self.producer.id,
            last_epoch=last_epoch,
        )

    def add(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> TransactionMetadata:
        """Add partitions to the transaction; begin one if none is open."""
        assert not self.is_decided, "no partitions are added to a decided transaction"
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer.id,
            client_version=client_version,
        )

    def decide(self, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """Commit or abort. From `EPOCH_BUMP_FROM` on this increments the producer's epoch, so that late batches cannot
        join the next transaction, and a transaction that has not begun may be aborted (KIP-890)."""
        epoch, last_epoch = self.producer.epoch, self.last_epoch
        if client_version >= EPOCH_BUMP_FROM:
            last_epoch, epoch = epoch, min(epoch + 1, MAX_EPOCH)
        return replace(
            self,
            producer=Producer(self.producer.id, epoch),
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer.id,
            next_producer_id=next_producer_id,
            last_epoch=last_epoch,
            client_version=client_version,
        )

    def fence(self, now_ms: int) -> TransactionMetadata:
        """Abort the transaction and fence its producer, before `EPOCH_BUMP_FROM`."""
        epoch = min(self.producer.epoch + 1, MAX_EPOCH)
        fenced = replace(self, producer=Producer(self.producer.id, epoch), last_epoch=NO_EPOCH)
        return fenced.decide(commit=False, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms)

    def complete(self, now_ms: int) -> TransactionMetadata:
        """Complete the decided transaction: every partition has its marker."""
        assert self.is_decided, "only a decided transaction is completed"
        rotates = self.client_version >= EPOCH_BUMP_FROM and self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            producer=Producer(self.next_producer_id, 0) if rotates else self.producer,
            state=TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=self.producer.id,
            next_producer_id=NO_PRODUCER_ID,
        )
