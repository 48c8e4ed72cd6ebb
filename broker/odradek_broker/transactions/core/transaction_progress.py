"""What is under way in one partition of `__transaction_state`, and what has to be done about it.

Owns the transactions by transactional id, the records of theirs that are being written, the markers that are being
sent, and the deadlines. An id of which something is under way is busy. Leaves requests to `transaction_shard`, and
which transition follows from what to `transaction_rules`.

A decision goes its way by itself: its record is written, its caller is answered, its markers are sent, and when all
partitions have theirs the completion is written. Whatever fails is tried again, or is taken up by the next coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.coordination.core.deadlines import DeadlineQueue, Instant
from odradek_broker.transactions.core import transaction_rules as rules
from odradek_broker.transactions.core.transaction_metadata import (
    Ending,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from odradek_broker.transactions.core.transaction_records import VALUE_VERSION, TransactionRecord
from odradek_broker.transactions.core.transaction_step import (
    Caller,
    TransactionMarkers,
    TransactionStep,
    Write,
    write_error,
)
from odradek_wire.errors import ErrorCode

RETRY_MS = 200
"""After which a completion that could not be written is tried again."""
NEVER_ABANDONED_MS = 0x7FFF_FFFF
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939): Kafka lets it stay open."""

NextId = Callable[[], int | None]


class DeadlineKind(IntEnum):
    """What is over, or to be done, when a deadline passes."""

    ABANDONED = 0
    """The transaction has been open for as long as its producer allows."""
    COMPLETION = 1
    """A completion could not be written."""


class Deadline(NamedTuple):
    kind: DeadlineKind
    transactional_id: str


@dataclass(slots=True, eq=False)
class Marking:
    """The markers of a decided transaction are on their way."""

    work: TransactionMarkers
    left: set[TopicPartition]


class Progress:
    __slots__ = (
        "_abort_interval_ms",
        "_deadlines",
        "_markings",
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
        self._writes: dict[str, Write] = {}
        self._markings: dict[str, Marking] = {}
        self._deadlines: DeadlineQueue[Deadline] = DeadlineQueue()

    def is_busy(self, transactional_id: str) -> bool:
        if transactional_id in self._writes:
            return True
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.is_decided

    def unmarked(self, transactional_id: str) -> Collection[TopicPartition]:
        """Partitions of the open transaction that have no marker yet."""
        marking = self._markings.get(transactional_id)
        return marking.left if marking is not None else self.transactions[transactional_id].partitions

    @property
    def markers_left(self) -> int:
        """How many markers of decided transactions are not written yet, as far as it is known."""
        return sum(len(marking.left) for marking in self._markings.values())

    # -- writing --------------------------------------------------------------------------------------------------

    def begin(
        self,
        step: TransactionStep,
        transactional_id: str,
        transaction: TransactionMetadata,
        caller: Caller | None = None,
    ) -> Write:
        """Write the next picture of an id that is not busy."""
        assert not self.is_busy(transactional_id), "one thing at a time"
        current = self.transactions.get(transactional_id)
        if transaction.state is TransactionState.ONGOING and (
            current is None or current.state is not TransactionState.ONGOING
        ):
            self._expect_end(transactional_id, transaction.timeout_ms, transaction.timeout_ms, step.now)
        return self._write(step, {transactional_id: transaction}, caller)

    def forget(self, step: TransactionStep, transactional_ids: Sequence[str]) -> None:
        """Write tombstones of ids that are not busy."""
        self._write(step, dict.fromkeys(transactional_ids))

    def written(self, write: Write, error: ErrorCode, now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        ids = [id_ for id_ in write.transactional_ids if self._writes.get(id_) is write]
        if not ids:
            return step
        caller, write.caller = write.caller, None
        if error == ErrorCode.REQUEST_TIMED_OUT:
            step.respond(caller, write_error(error))
            return step
        for id_ in ids:
            del self._writes[id_]
        if not error:
            step.respond(caller, write.error, write.producer)
            self._go_on(step, ids)
            step.ended = self._ending(write)
            return step
        step.respond(caller, write_error(error))
        for id_ in ids:
            if self.is_busy(id_):
                self._deadlines.set(Deadline(DeadlineKind.COMPLETION, id_), now.timeout_ms + RETRY_MS)
        return step

    def markers_written(
        self, work: TransactionMarkers, partitions: Collection[TopicPartition], now: Instant
    ) -> TransactionStep:
        step = TransactionStep(now)
        id_ = work.transactional_id
        marking = self._markings.get(id_)
        if marking is not None and marking.work is work:
            marking.left.difference_update(partitions)
            if not marking.left:
                del self._markings[id_]
                self._complete(step, [id_])
        return step

    def _go_on(self, step: TransactionStep, transactional_ids: Collection[str]) -> None:
        """What was decided has to be told to the partitions; if there are none, the transaction is complete."""
        complete = []
        for id_ in transactional_ids:
            transaction = self.transactions.get(id_)
            if transaction is None or not transaction.is_decided:
                continue
            if not transaction.partitions:
                complete.append(id_)
                continue
            work = TransactionMarkers(
                id_,
                transaction.producer,
                self.coordinator_epoch,
                transaction.commits,
                transaction.client_version,
                transaction.partitions,
            )
            self._markings[id_] = Marking(work, set(transaction.partitions))
            step.markers.append(work)
        if complete:
            self._complete(step, complete)

    def _ending(self, write: Write) -> Ending | None:
        """What these records have decided. A decision is written alone."""
        transaction = self.transactions.get(write.transactional_ids[0])
        if transaction is None or not transaction.is_decided:
            return None
        if transaction.commits:
            return Ending.COMMITTED
        return Ending.TIMED_OUT if write.timed_out else Ending.ABORTED

    def _complete(self, step: TransactionStep, transactional_ids: Sequence[str]) -> None:
        self._write(step, {id_: self.transactions[id_].complete(step.now.wall_ms) for id_ in transactional_ids})

    def _write(
        self, step: TransactionStep, pictures: dict[str, TransactionMetadata | None], caller: Caller | None = None
    ) -> Write:
        assert step.write is None, "one write in a step"
        version = VALUE_VERSION if self.transaction_version >= 1 else 0
        step.records = [TransactionRecord(id_, picture, version) for id_, picture in pictures.items()]
        step.write = Write(tuple(pictures), caller)
        self._writes.update(dict.fromkeys(pictures, step.write))
        return step.write

    # -- time -----------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def expired(self, now: Instant, next_id: NextId) -> Iterator[TransactionStep]:
        for deadline in self._deadlines.take_due(now.timeout_ms):
            step = TransactionStep(now)
            id_ = deadline.transactional_id
            transaction = self.transactions.get(id_)
            if transaction is None:
                continue
            match deadline.kind:
                case DeadlineKind.COMPLETION:
                    if transaction.is_decided and id_ not in self._writes and id_ not in self._markings:
                        self._complete(step, [id_])
                case DeadlineKind.ABANDONED:
                    if transaction.state is TransactionState.ONGOING or self.is_busy(id_):
                        # Again if that fails, or if the transaction is only about to begin; not once it has ended.
                        self._deadlines.set(deadline, now.timeout_ms + self._abort_interval_ms)
                    if transaction.state is TransactionState.ONGOING and not self.is_busy(id_):
                        self._abort(step, id_, transaction, next_id)
            if step.write is not None:
                yield step

    def _abort(
        self, step: TransactionStep, transactional_id: str, transaction: TransactionMetadata, next_id: NextId
    ) -> None:
        """Its producer has not ended it in time."""
        fresh_id = next_id() if rules.takes_fresh_id(transaction) else None
        outcome = rules.abort(transaction, self.transaction_version, fresh_id, step.now.wall_ms)
        if isinstance(outcome, TransactionMetadata):
            self.begin(step, transactional_id, outcome).timed_out = True
            step.log_event("abandoned transaction is aborted", transactional_id, transaction.producer, notable=True)

    def _expect_end(self, transactional_id: str, timeout_ms: int, delay_ms: int, now: Instant) -> None:
        if timeout_ms != NEVER_ABANDONED_MS:
            self._deadlines.set(Deadline(DeadlineKind.ABANDONED, transactional_id), now.timeout_ms + delay_ms)

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        id_, transaction = record.transactional_id, record.transaction
        if transaction is None:
            self.transactions.pop(id_, None)
        else:
            self.transactions[id_] = transaction
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            self._deadlines.cancel(Deadline(DeadlineKind.ABANDONED, id_))

    def loaded(self, coordinator_epoch: int, now: Instant) -> TransactionStep:
        self.coordinator_epoch = coordinator_epoch
        step = TransactionStep(now)
        for id_, transaction in self.transactions.items():
            if transaction.state is TransactionState.ONGOING:
                timeout_ms = transaction.timeout_ms
                # The clock may have been moved since it began, to either side.
                left_ms = min(max(transaction.start_ms + timeout_ms - now.wall_ms, 0), timeout_ms)
                self._expect_end(id_, timeout_ms, left_ms, now)
        self._go_on(step, self.transactions)
        return step

    def unload(self, now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        for write in dict.fromkeys(self._writes.values()):
            step.respond(write.caller, ErrorCode.NOT_COORDINATOR)
        self.transactions.clear()
        self._writes.clear()
        self._markings.clear()
        self._deadlines.clear()
        return step
