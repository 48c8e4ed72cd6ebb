"""One step of a transaction coordinator: what comes in with every input, and what goes out.

Owns the vocabulary between the rules of transactions and the shell: settings, waiting answers, records to write, what
has to be settled once they are written, and markers to send. Leaves the rules to `transaction_requests` and
`transaction_shard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_broker.core.group_deadlines import Instant
from odradek_broker.core.transaction import Producer, TopicPartition
from odradek_broker.core.transaction_records import TransactionRecord
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdResponse

Token = object
"""Stands for a request that waits; only the shell knows what it is."""

Answer = InitProducerIdResponse | EndTxnResponse | ErrorCode
"""To InitProducerId, to EndTxn; to AddPartitionsToTxn (for all partitions of the transaction) and AddOffsetsToTxn."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions; the names are Kafka's."""

    max_timeout_ms: int = 15 * 60 * 1000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms: abandoned transactions are looked for so often."""


@dataclass(frozen=True, slots=True)
class MarkerWork:
    """A decided transaction whose partitions must learn of it. Whoever carries it out reports progress by
    `TransactionShard.markers_written`, with this very object."""

    transactional_id: str
    producer: Producer
    """As it stands in the marker: under transaction version 2 with the bumped epoch."""
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """For WriteTxnMarkers v2: 2 if the epoch was bumped, else 0 or 1."""
    partitions: frozenset[TopicPartition]
    """Never empty."""


@dataclass(frozen=True, slots=True)
class Write:
    """Records of these transactional ids are under way: opaque to the shell, which hands it back to
    `TransactionShard.written`."""

    transactional_ids: tuple[str, ...]
    number: int


class Happening(NamedTuple):
    """Something that an operator may want to read: what happened to which transactional id."""

    event: str
    transactional_id: str
    producer: Producer
    notable: bool
    """Somebody was fenced, or did not end its transaction; the rest is the ordinary course of transactions."""


@dataclass(slots=True)
class Step:
    """Filled while one input is worked on. The shell gives the answers, begins to send the markers, appends the records
    as one batch, and reports the outcome with `TransactionShard.written(step.write, ...)`. There is a `write` if, and
    only if, there are records."""

    now: Instant
    records: Sequence[TransactionRecord] = ()
    answers: list[tuple[Token, Answer]] = field(default_factory=list)
    write: Write | None = None
    markers: list[MarkerWork] = field(default_factory=list)
    happened: list[Happening] = field(default_factory=list)
