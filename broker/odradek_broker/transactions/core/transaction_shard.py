"""One partition of `__transaction_state`: all transactional ids that it holds.

Owns the way from a request to its rule, and from there to a step; what a busy id means to each request; the expiry of
ids. The rules are in `transaction_rules`, what follows once a record is written in `transaction_progress`; appending,
waiting, sending markers and answering are the shell's.

A transaction changes in `replay` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import Token
from odradek_broker.transactions.core import transaction_rules as rules
from odradek_broker.transactions.core.transaction_listing import TransactionFilter, described, listed, not_described
from odradek_broker.transactions.core.transaction_metadata import (
    EPOCH_GROWS_FROM,
    Producer,
    TopicPartition,
    TransactionMetadata,
)
from odradek_broker.transactions.core.transaction_progress import NextId, Progress
from odradek_broker.transactions.core.transaction_records import TransactionRecord
from odradek_broker.transactions.core.transaction_step import (
    Asked,
    Caller,
    TransactionMarkers,
    TransactionSettings,
    TransactionStep,
    Write,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_transactions import ListTransactionsResponse

TOMBSTONES_BYTES_MAX = 256 * 1024
"""Of one batch."""


class TransactionShard:
    """Methods that lead to anything but their result return a `TransactionStep`.

    Every token gets exactly one answer, in some step: in this one, in that of `written`, or in that of `unload`."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self._progress = Progress(settings.abort_interval_ms)

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        return self._progress.transactions

    @property
    def transaction_version(self) -> int:
        """The cluster's level of `transaction.version`; the shell sets it, at any time."""
        return self._progress.transaction_version

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        self._progress.transaction_version = level

    # -- requests -------------------------------------------------------------------------------------------------

    def init_takes_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId, asked for now, may take a fresh producer id. If that changes before the request is
        made, the answer is CONCURRENT_TRANSACTIONS."""
        return rules.takes_fresh_id(self.transactions.get(transactional_id))

    def end_takes_id(self, transactional_id: str) -> bool:
        """The same for EndTxn, which finds no transaction of an unknown id."""
        return transactional_id in self.transactions and self.init_takes_id(transactional_id)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a record or the markers of this id are under way: mostly over in a few milliseconds, and until then
        whatever would change it is answered with CONCURRENT_TRANSACTIONS."""
        return self._progress.is_busy(transactional_id)

    def init_producer_id(
        self, request: InitProducerIdRequest, api_version: int, fresh_id: int | None, token: Token, now: Instant
    ) -> TransactionStep:
        """With a transactional id (not None). Versions 0-5; answered with an `InitProducerIdResponse`."""
        caller = Caller(token, Asked.INIT, api_version)
        id_, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        assert id_ is not None, "a producer without transactional id is no coordinator's business"
        expected = Producer(request.producer_id, request.producer_epoch)
        outcome: rules.Outcome
        if (expected.id == -1) != (expected.epoch == -1) or not id_:
            outcome = ErrorCode.INVALID_REQUEST
        elif not 0 < timeout_ms <= self.settings.max_timeout_ms:
            outcome = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        elif self._progress.is_busy(id_):
            outcome = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.initialize(
                self.transactions.get(id_),
                None if expected == rules.NO_PRODUCER else expected,
                timeout_ms,
                self.transaction_version,
                fresh_id,
                now.wall_ms,
            )
        step, write = self._settle(id_, outcome, caller, now)
        if write is not None and isinstance(outcome, TransactionMetadata):
            if outcome.is_decided:
                # The transaction of whoever had this id before comes to its end first.
                write.error = ErrorCode.CONCURRENT_TRANSACTIONS
                step.log_event("open transaction is aborted for another producer", id_, outcome.producer, notable=True)
            else:
                write.producer = outcome.producer
        return step

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        api_version: int,
        token: Token,
        now: Instant,
    ) -> TransactionStep:
        """One transaction of AddPartitionsToTxn v0-5, not verify-only; answered with an `ErrorCode`, that of each
        partition."""
        caller = Caller(token, Asked.ADD_PARTITIONS, api_version)
        version = EPOCH_GROWS_FROM if caller.grows_epochs else 0
        return self._add(transactional_id, producer, partitions, version, caller, now)

    def add_offsets(
        self,
        transactional_id: str,
        producer: Producer,
        partition: TopicPartition,
        api_version: int,
        token: Token,
        now: Instant,
    ) -> TransactionStep:
        """AddOffsetsToTxn v0-4, with the partition of `__consumer_offsets` of its group; answered with an
        `ErrorCode`."""
        caller = Caller(token, Asked.ADD_OFFSETS, api_version)
        return self._add(transactional_id, producer, (partition,), 0, caller, now)

    def add_refused(self, transactional_id: str, producer: Producer) -> ErrorCode:
        """With what this producer may be turned away at once: it adds nothing, whatever is under way. Else NONE."""
        return rules.add_refused(self.transactions.get(transactional_id), producer)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """One transaction of AddPartitionsToTxn v4-5, verify-only."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        return rules.verify(self.transactions.get(transactional_id), producer, partitions)

    def end_txn(
        self, request: EndTxnRequest, api_version: int, fresh_id: int | None, token: Token, now: Instant
    ) -> TransactionStep:
        """Answered with an `EndTxnResponse` once the decision is written; v5 tells who produces from now on."""
        id_ = request.transactional_id
        producer = Producer(request.producer_id, request.producer_epoch)
        current = self.transactions.get(id_)
        caller = Caller(token, Asked.END, api_version)
        outcome: rules.Outcome
        if not id_:
            outcome = ErrorCode.INVALID_REQUEST
        elif not caller.grows_epochs:
            # Who is outdated is told so, whatever is under way.
            outcome = rules.identity_error(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
            if not self._progress.is_busy(id_):
                outcome = rules.end_before_epochs_grow(current, producer, request.committed, now.wall_ms)
        elif self._progress.is_busy(id_):
            outcome = rules.end_refused(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.end(current, producer, request.committed, fresh_id, now.wall_ms)
        step, write = self._settle(id_, outcome, caller, now)
        if write is not None and isinstance(outcome, TransactionMetadata):
            write.producer = outcome.complete(now.wall_ms).producer
        return step

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        caller: Caller,
        now: Instant,
    ) -> TransactionStep:
        current = self.transactions.get(transactional_id)
        outcome: rules.Outcome
        if not transactional_id:
            outcome = ErrorCode.INVALID_REQUEST
        elif self._progress.is_busy(transactional_id):
            # Who is outdated is told so, whatever is under way.
            outcome = rules.add_refused(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.add(current, producer, partitions, client_version, now.wall_ms)
        step, _ = self._settle(transactional_id, outcome, caller, now)
        return step

    def _settle(
        self, transactional_id: str, outcome: rules.Outcome, caller: Caller, now: Instant
    ) -> tuple[TransactionStep, Write | None]:
        """Answer an error, or what needs no writing; write the rest, and let the caller wait."""
        step = TransactionStep(now)
        if isinstance(outcome, TransactionMetadata) and caller.grows_epochs and not self.transaction_version:
            # Records of this level cannot say it. Clients that are told the level do not ask.
            outcome = ErrorCode.UNSUPPORTED_VERSION
        if isinstance(outcome, TransactionMetadata):
            return step, self._progress.begin(step, transactional_id, outcome, caller)
        if outcome:
            step.respond(caller, outcome)
        else:
            step.respond(caller, outcome, self.transactions[transactional_id].producer)
        return step, None

    # -- what the shell reports -----------------------------------------------------------------------------------

    def written(self, write: Write, error: ErrorCode, now: Instant) -> TransactionStep:
        """What became of a step's records, as the log says it: NONE when they have been replayed, else why not.

        REQUEST_TIMED_OUT: they are in the log, and may yet take effect. Whoever waits is told, and the ids stay busy
        until `written` is called once more, with NONE when they have been replayed (or until `unload`)."""
        return self._progress.written(write, error, now)

    def markers_written(
        self, work: TransactionMarkers, partitions: Collection[TopicPartition], now: Instant
    ) -> TransactionStep:
        """These partitions have their marker, or need none any more (deleted, or fenced by a newer epoch). When that is
        true of all, the transaction is completed. Reporting a partition twice, or outdated work, does nothing."""
        return self._progress.markers_written(work, partitions, now)

    # -- time -----------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """A moment, on the clock of timeouts, at or before the next thing to be done; None when there is none."""
        return self._progress.next_ms()

    def expired(self, now: Instant, next_id: NextId) -> Iterator[TransactionStep]:
        """Abandoned transactions are aborted, and writes that failed are made again. To be used up: each step is worked
        out when it is taken. `next_id` is asked for a fresh producer id if one is needed; if it has none at hand, it is
        asked again later."""
        return self._progress.expired(now, next_id)

    def expire_ids(self, now: Instant) -> Iterator[TransactionStep]:
        """Transactional ids without an open transaction that nobody has used for `transactional.id.expiration.ms` are
        forgotten. For the shell to call every `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        until_ms = now.wall_ms - self.settings.id_expiration_ms
        batch: list[str] = []
        size = 0
        for id_ in list(self.transactions):
            # Between two batches somebody may have used it.
            transaction = self.transactions.get(id_)
            if transaction is None or self._progress.is_busy(id_):
                continue
            if transaction.is_at_rest and transaction.updated_ms <= until_ms:
                batch.append(id_)
                size += 4 * len(id_) + 32
            if size > TOMBSTONES_BYTES_MAX:
                yield self._forgetting(batch, now)
                batch, size = [], 0
        if batch:
            yield self._forgetting(batch, now)

    def _forgetting(self, transactional_ids: Sequence[str], now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        self._progress.forget(step, transactional_ids)
        for id_ in transactional_ids:
            step.log_event("unused transactional id is forgotten", id_, self.transactions[id_].producer)
        return step

    # -- administration -------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        if not transactional_id:
            return not_described(transactional_id, ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return described(transactional_id, transaction, self._progress.unmarked(transactional_id))

    @property
    def markers_left(self) -> int:
        """How many markers of decided transactions are not known to be written."""
        return self._progress.markers_left

    def list(self, wanted: TransactionFilter, now: Instant) -> Iterable[ListTransactionsResponse.TransactionState]:
        return [
            listed(id_, transaction)
            for id_, transaction in self.transactions.items()
            if wanted.passes(id_, transaction, now.wall_ms)
        ]

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        """A record is in the log for good, or (at loading) was found there."""
        self._progress.replay(record)

    def loaded(self, coordinator_epoch: int, now: Instant) -> TransactionStep:
        """All records are replayed. Decided transactions that were not completed get their markers sent (again)."""
        return self._progress.loaded(coordinator_epoch, now)

    def unload(self, now: Instant) -> TransactionStep:
        """Somebody else coordinates these transactions now: whoever waits is sent there."""
        return self._progress.unload(now)
