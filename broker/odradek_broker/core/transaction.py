"""One transactional id: who produces under it, and how far its transaction has come.

Owns the picture and its transitions: each returns the next picture and changes nothing. Leaves which request leads to
which transition, and its errors, to `transaction_requests`, and the format of records to `transaction_records`.

                    add partitions           end                 markers written
    EMPTY ──────────────► ONGOING ──────────► PREPARE_COMMIT ──────────► COMPLETE_COMMIT
      ▲                      │                                                │
      │ init                 └──────────────► PREPARE_ABORT  ──────────► COMPLETE_ABORT
      └── from any state without an open transaction; from COMPLETE_* the next one begins, too

The facts are those of Kafka's TransactionMetadata in 4.3 (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 0x7FFF

EPOCH_GROWS_FROM = 2
"""The transaction version from which on each transaction ends with an epoch of its own (KIP-890)."""

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """The name is DescribeTransactions', the number stands in records."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    """In Kafka, of an id whose tombstone is under way. A filter may name it; nothing is ever in it."""
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"
    """In Kafka, for a moment, of a transaction that is aborted by the coordinator. Likewise."""

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]


class Producer(NamedTuple):
    """Who produces: an epoch outdates all those before it."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the coordinator knows of one transactional id. Times are of the wall clock, in milliseconds."""

    producer: Producer
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Of the open transaction; while it ends, the same, whichever have their marker already."""
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_id: int = NO_PRODUCER_ID
    """The producer id before the last transition: mostly the same."""
    next_id: int = NO_PRODUCER_ID
    """While a transaction ends with the last epoch there is: who produces once it is complete (KIP-890)."""
    last_epoch: int = NO_EPOCH
    """What the producer may still believe its epoch to be, if an answer got lost. Not in the log, as in Kafka."""
    client_version: int = 0
    """The transaction version of who brought about the last transition (KIP-890)."""
