"""One transactional id: who produces under it, and how far its transaction has come.

Owns the picture and its transitions: each returns the next picture and changes nothing. Leaves which request leads to
which transition, and its errors, to `transaction_rules`, and the format of records to `transaction_records`.

              add partitions            end                markers written
    EMPTY ───────────────────► ONGOING ─────► PREPARE_COMMIT ────────────► COMPLETE_COMMIT
      ▲                           │                                               │
      │ init                      └─────────► PREPARE_ABORT ─────────────► COMPLETE_ABORT
      │                                                                           │
      └── from EMPTY and COMPLETE_*; from COMPLETE_* the next transaction may begin at once

The facts are those of Kafka's TransactionMetadata in 4.3 (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1

MAX_EPOCH = 0x7FFF
LAST_EPOCH_OF_CLIENTS = MAX_EPOCH - 1
"""So that there is always one left to fence whoever has it."""

EPOCH_GROWS_FROM = 2
"""The transaction version from which on each transaction ends with an epoch of its own (KIP-890)."""

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """The number stands in records, the label in DescribeTransactions."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    """In Kafka, of an id whose tombstone is under way. A filter may name it; nothing here is ever in it."""
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"
    """In Kafka, for a moment, of a transaction that the coordinator aborts. Likewise."""

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]


class Ending(Enum):
    """How a transaction ends: who has decided it, and which way."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its producer, or for another one that takes its place."""
    TIMED_OUT = "timed_out"
    """Aborted by the coordinator: its producer has left it open for too long."""


class Producer(NamedTuple):
    """Who produces: an epoch outdates all those before it."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """What the coordinator knows of one transactional id. Times are of the wall clock, in milliseconds."""

    producer: Producer
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Of the open transaction, until it is complete."""
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_id: int = NO_PRODUCER_ID
    """The producer id before the last transition: mostly the same."""
    next_id: int = NO_PRODUCER_ID
    """While a transaction ends whose producer has used up its epochs: the producer id from then on (KIP-890)."""
    last_epoch: int = NO_EPOCH
    """What the producer may still believe its epoch to be, if an answer got lost. Not in the log, as in Kafka 4.3."""
    client_version: int = 0
    """The transaction version of whoever brought about the last transition that depends on it (KIP-890)."""

    @staticmethod
    def new(producer_id: int, timeout_ms: int) -> TransactionMetadata:
        """An id that nobody has used: `initialize` gives it its first epoch."""
        return TransactionMetadata(Producer(producer_id, NO_EPOCH), timeout_ms)

    @property
    def epochs_used_up(self) -> bool:
        return self.producer.epoch >= LAST_EPOCH_OF_CLIENTS

    @property
    def is_at_rest(self) -> bool:
        """No transaction is open."""
        return self.state in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )

    @property
    def is_decided(self) -> bool:
        """Its markers are being written."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def commits(self) -> bool:
        """Of a transaction that is decided."""
        return self.state is TransactionState.PREPARE_COMMIT

    def initialize(self, producer: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Without an open transaction: from now on this producer, and no other."""
        assert self.is_at_rest, "a transaction is open"
        return replace(
            self,
            producer=producer,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            start_ms=NO_TIME,
            updated_ms=now_ms,
            previous_id=self.producer.id,
            last_epoch=last_epoch,
        )

    def add(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> TransactionMetadata:
        """Begins a transaction if none is open."""
        assert not self.is_decided, "a transaction that is decided takes no partitions"
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_id=self.producer.id,
            client_version=client_version,
        )

    def decide(self, commit: bool, client_version: int, next_id: int, now_ms: int) -> TransactionMetadata:
        """Commit or abort. With `EPOCH_GROWS_FROM` the producer's epoch grows, so that nothing that was sent before can
        join the next transaction; and it may abort what has never begun, which has no start then (KIP-890)."""
        epoch, last_epoch = self.producer.epoch, self.last_epoch
        if client_version >= EPOCH_GROWS_FROM:
            last_epoch, epoch = epoch, min(epoch + 1, MAX_EPOCH)
        return replace(
            self,
            producer=Producer(self.producer.id, epoch),
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_id=self.producer.id,
            next_id=next_id,
            last_epoch=last_epoch,
            client_version=client_version,
        )

    def fence(self, now_ms: int) -> TransactionMetadata:
        """The coordinator aborts it before `EPOCH_GROWS_FROM`: whoever produces is outdated."""
        epoch = min(self.producer.epoch + 1, MAX_EPOCH)
        fenced = replace(self, producer=Producer(self.producer.id, epoch), last_epoch=NO_EPOCH)
        return fenced.decide(commit=False, client_version=0, next_id=NO_PRODUCER_ID, now_ms=now_ms)

    def complete(self, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker."""
        assert self.is_decided, "only what is decided is completed"
        rotates = self.client_version >= EPOCH_GROWS_FROM and self.next_id != NO_PRODUCER_ID
        return replace(
            self,
            producer=Producer(self.next_id, 0) if rotates else self.producer,
            state=TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_id=self.producer.id,
            next_id=NO_PRODUCER_ID,
        )
