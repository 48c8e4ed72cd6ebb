"""The metadata of the transactions of one partition of `__transaction_state`, and their pending writes, markers and
deadlines (Kafka's TransactionStateManager, for one partition and without its log).

Owns the metadata by transactional id. An id is busy while one of its records is being written, or its markers are.
Leaves requests to `transaction_shard`, and the choice of transitions to `transaction_rules`.

A decided transaction is completed without another request: the coordinator writes the decision, sends the response and
the markers, and writes the completion when all partitions have their marker. It retries failures; after a change of
leadership the next coordinator does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.coordination.core.deadlines import DeadlineQueue, Instant
from odradek_broker.transactions.core import transaction_rules as rules
from odradek_broker.transactions.core.transaction_metadata import (
    TopicPartition,
    TransactionMetadata,
    TransactionOutcome,
    TransactionState,
)
from odradek_broker.transactions.core.transaction_records import VALUE_VERSION, TransactionRecord
from odradek_broker.transactions.core.transaction_step import (
    PendingRequest,
    TransactionMarkers,
    TransactionStep,
    TransactionWrite,
    write_error,
)
from odradek_wire.errors import ErrorCode

RETRY_MS = 200
"""The delay before a completion that could not be written is retried."""
NO_TIMEOUT_MS = 0x7FFF_FFFF
"""The timeout of a transaction in a two-phase commit (KIP-939): Kafka never aborts it."""

GenerateProducerId = Callable[[], int | None]
"""Returns a fresh producer id; None if the broker has none left and has to request a block."""


class DeadlineKind(IntEnum):
    TRANSACTION_TIMEOUT = 0
    """The transaction has been open for the producer's transaction timeout."""
    COMPLETION_RETRY = 1
    """A completion could not be written."""


class Deadline(NamedTuple):
    kind: DeadlineKind
    transactional_id: str


@dataclass(slots=True, eq=False)
class PendingMarkers:
    """The markers of a decided transaction that are not all written."""

    markers: TransactionMarkers
    left: set[TopicPartition]
    """Partitions without their marker."""


class TransactionStateManager:
    """The state of a `TransactionShard`. A method without a docstring has the contract of the shard's method of the
    same name."""

    __slots__ = (
        "_abort_interval_ms",
        "_deadlines",
        "_pending_markers",
        "_writes",
        "coordinator_epoch",
        "transaction_version",
        "transactions",
    )

    def __init__(self, abort_interval_ms: int) -> None:
        self._abort_interval_ms = abort_interval_ms
        self.transactions: dict[str, TransactionMetadata] = {}
        self.transaction_version = 0
        self.coordinator_epoch = -1
        self._writes: dict[str, TransactionWrite] = {}
        self._pending_markers: dict[str, PendingMarkers] = {}
        self._deadlines: DeadlineQueue[Deadline] = DeadlineQueue()

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a record of the id is being written, or the markers of its transaction are."""
        if transactional_id in self._writes:
            return True
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.is_decided

    def unmarked(self, transactional_id: str) -> Collection[TopicPartition]:
        """The partitions of the open transaction without their marker."""
        pending = self._pending_markers.get(transactional_id)
        return pending.left if pending is not None else self.transactions[transactional_id].partitions

    @property
    def markers_left(self) -> int:
        """The number of markers of decided transactions that are not known to be written."""
        return sum(len(pending.left) for pending in self._pending_markers.values())

    # -- writing --------------------------------------------------------------------------------------------------

    def write(
        self,
        step: TransactionStep,
        transactional_id: str,
        transaction: TransactionMetadata,
        pending: PendingRequest | None = None,
    ) -> TransactionWrite:
        """Write new metadata of an id that is not busy. The request `pending` gets its response after the write."""
        assert not self.is_busy(transactional_id), "one write at a time"
        current = self.transactions.get(transactional_id)
        if transaction.state is TransactionState.ONGOING and (
            current is None or current.state is not TransactionState.ONGOING
        ):
            self._set_timeout(transactional_id, transaction.timeout_ms, transaction.timeout_ms, step.now)
        return self._append(step, {transactional_id: transaction}, pending)

    def write_tombstones(self, step: TransactionStep, transactional_ids: Sequence[str]) -> None:
        """Write tombstones of ids that are not busy."""
        self._append(step, dict.fromkeys(transactional_ids))

    def written(self, write: TransactionWrite, error: ErrorCode, now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        ids = [id_ for id_ in write.transactional_ids if self._writes.get(id_) is write]
        if not ids:
            return step
        pending, write.pending = write.pending, None
        if error == ErrorCode.REQUEST_TIMED_OUT:
            step.respond(pending, write_error(error))
            return step
        for id_ in ids:
            del self._writes[id_]
        if not error:
            step.respond(pending, write.error, write.producer)
            self._send_markers(step, ids)
            step.outcome = self._decided_outcome(write)
            return step
        step.respond(pending, write_error(error))
        for id_ in ids:
            if self.is_busy(id_):
                self._deadlines.set(Deadline(DeadlineKind.COMPLETION_RETRY, id_), now.monotonic_ms + RETRY_MS)
        return step

    def markers_written(
        self, markers: TransactionMarkers, partitions: Collection[TopicPartition], now: Instant
    ) -> TransactionStep:
        step = TransactionStep(now)
        id_ = markers.transactional_id
        pending = self._pending_markers.get(id_)
        if pending is not None and pending.markers is markers:
            pending.left.difference_update(partitions)
            if not pending.left:
                del self._pending_markers[id_]
                self._complete(step, [id_])
        return step

    def _send_markers(self, step: TransactionStep, transactional_ids: Collection[str]) -> None:
        """Send the markers of the decided transactions among these; complete those without partitions."""
        complete = []
        for id_ in transactional_ids:
            transaction = self.transactions.get(id_)
            if transaction is None or not transaction.is_decided:
                continue
            if not transaction.partitions:
                complete.append(id_)
                continue
            markers = TransactionMarkers(
                transactional_id=id_,
                producer=transaction.producer,
                coordinator_epoch=self.coordinator_epoch,
                commit=transaction.commits,
                transaction_version=transaction.client_version,
                partitions=transaction.partitions,
            )
            self._pending_markers[id_] = PendingMarkers(markers, set(transaction.partitions))
            step.markers.append(markers)
        if complete:
            self._complete(step, complete)

    def _decided_outcome(self, write: TransactionWrite) -> TransactionOutcome | None:
        """The outcome that this write has decided, if any. The write of a decision has only one transactional id."""
        transaction = self.transactions.get(write.transactional_ids[0])
        if transaction is None or not transaction.is_decided:
            return None
        if transaction.commits:
            return TransactionOutcome.COMMITTED
        return TransactionOutcome.TIMED_OUT if write.timed_out else TransactionOutcome.ABORTED

    def _complete(self, step: TransactionStep, transactional_ids: Sequence[str]) -> None:
        self._append(step, {id_: self.transactions[id_].complete(step.now.wall_ms) for id_ in transactional_ids})

    def _append(
        self,
        step: TransactionStep,
        metadata: dict[str, TransactionMetadata | None],
        pending: PendingRequest | None = None,
    ) -> TransactionWrite:
        """Write new metadata of these ids in one batch; None is a tombstone."""
        assert step.write is None, "one write in a step"
        version = VALUE_VERSION if self.transaction_version >= 1 else 0
        step.records = [TransactionRecord(id_, transaction, version) for id_, transaction in metadata.items()]
        step.write = TransactionWrite(tuple(metadata), pending)
        self._writes.update(dict.fromkeys(metadata, step.write))
        return step.write

    # -- time -----------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def handle_deadlines(self, now: Instant, generate_producer_id: GenerateProducerId) -> Iterator[TransactionStep]:
        for deadline in self._deadlines.take_due(now.monotonic_ms):
            step = TransactionStep(now)
            id_ = deadline.transactional_id
            transaction = self.transactions.get(id_)
            if transaction is None:
                continue
            match deadline.kind:
                case DeadlineKind.COMPLETION_RETRY:
                    if transaction.is_decided and id_ not in self._writes and id_ not in self._pending_markers:
                        self._complete(step, [id_])
                case DeadlineKind.TRANSACTION_TIMEOUT:
                    if transaction.state is TransactionState.ONGOING or self.is_busy(id_):
                        # Check again, in case the abort fails or the transaction is only about to begin. `replay`
                        # cancels the deadline when the transaction has ended.
                        self._deadlines.set(deadline, now.monotonic_ms + self._abort_interval_ms)
                    if transaction.state is TransactionState.ONGOING and not self.is_busy(id_):
                        self._abort(step, id_, transaction, generate_producer_id)
            if step.write is not None:
                yield step

    def _abort(
        self,
        step: TransactionStep,
        transactional_id: str,
        transaction: TransactionMetadata,
        generate_producer_id: GenerateProducerId,
    ) -> None:
        """Abort a transaction that its producer has not ended before the timeout."""
        fresh_producer_id = generate_producer_id() if rules.may_need_producer_id(transaction) else None
        outcome = rules.abort(transaction, self.transaction_version, fresh_producer_id, step.now.wall_ms)
        if isinstance(outcome, TransactionMetadata):
            self.write(step, transactional_id, outcome).timed_out = True
            step.log_event("timed-out transaction aborted", transactional_id, transaction.producer, notable=True)

    def _set_timeout(self, transactional_id: str, timeout_ms: int, delay_ms: int, now: Instant) -> None:
        if timeout_ms != NO_TIMEOUT_MS:
            self._deadlines.set(
                Deadline(DeadlineKind.TRANSACTION_TIMEOUT, transactional_id), now.monotonic_ms + delay_ms
            )

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        id_, transaction = record.transactional_id, record.transaction
        if transaction is None:
            self.transactions.pop(id_, None)
        else:
            self.transactions[id_] = transaction
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            self._deadlines.cancel(Deadline(DeadlineKind.TRANSACTION_TIMEOUT, id_))

    def loaded(self, coordinator_epoch: int, now: Instant) -> TransactionStep:
        self.coordinator_epoch = coordinator_epoch
        step = TransactionStep(now)
        for id_, transaction in self.transactions.items():
            if transaction.state is TransactionState.ONGOING:
                timeout_ms = transaction.timeout_ms
                # The wall clock may have moved in either direction since the transaction began.
                left_ms = min(max(transaction.start_ms + timeout_ms - now.wall_ms, 0), timeout_ms)
                self._set_timeout(id_, timeout_ms, left_ms, now)
        self._send_markers(step, self.transactions)
        return step

    def unload(self, now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        for write in dict.fromkeys(self._writes.values()):
            step.respond(write.pending, ErrorCode.NOT_COORDINATOR)
        self.transactions.clear()
        self._writes.clear()
        self._pending_markers.clear()
        self._deadlines.clear()
        return step
