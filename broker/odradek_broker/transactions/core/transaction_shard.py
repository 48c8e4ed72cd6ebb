"""All transactional ids of one partition of `__transaction_state`.

Owns the choice of the rule for each request, the responses for a busy id, and the expiration of ids. Leaves the rules
to `transaction_rules`, metadata, completed writes and markers to `transaction_state_manager`, and appending, waiting,
sending markers and responses to the shell.

Metadata changes only in `replay`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.transactions.core import transaction_rules as rules
from odradek_broker.transactions.core.transaction_listing import TransactionFilter, described, listed, not_described
from odradek_broker.transactions.core.transaction_metadata import (
    EPOCH_BUMP_FROM,
    Producer,
    TopicPartition,
    TransactionMetadata,
)
from odradek_broker.transactions.core.transaction_records import TransactionRecord
from odradek_broker.transactions.core.transaction_state_manager import GenerateProducerId, TransactionStateManager
from odradek_broker.transactions.core.transaction_step import (
    PendingRequest,
    TransactionApi,
    TransactionMarkers,
    TransactionSettings,
    TransactionStep,
    TransactionWrite,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_transactions import ListTransactionsResponse

TOMBSTONES_BYTES_MAX = 256 * 1024
"""The size of one batch of tombstones, estimated."""


class TransactionShard:
    """The transactions of one partition. Methods that write, respond or send markers return a `TransactionStep`.

    Each deferred response is completed once: by the step that its request, `written` or `unload` returns."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self._state_manager = TransactionStateManager(settings.abort_interval_ms)

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        """The metadata by transactional id."""
        return self._state_manager.transactions

    @property
    def transaction_version(self) -> int:
        """The cluster's level of `transaction.version`, which the shell may change at any time."""
        return self._state_manager.transaction_version

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        self._state_manager.transaction_version = level

    # -- requests -------------------------------------------------------------------------------------------------

    def init_may_need_producer_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId may need a fresh producer id. If it needs one and is called without, the response is
        CONCURRENT_TRANSACTIONS."""
        return rules.may_need_producer_id(self.transactions.get(transactional_id))

    def end_may_need_producer_id(self, transactional_id: str) -> bool:
        """Whether EndTxn may need a fresh producer id. It needs none for an unknown transactional id."""
        return transactional_id in self.transactions and self.init_may_need_producer_id(transactional_id)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a record of the id or the markers of its transaction are being written, which usually takes a few
        milliseconds. Until that is done, requests that would change its metadata get CONCURRENT_TRANSACTIONS."""
        return self._state_manager.is_busy(transactional_id)

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        api_version: int,
        fresh_producer_id: int | None,
        deferred: DeferredResponse,
        now: Instant,
    ) -> TransactionStep:
        """Handle InitProducerId v0-5 with a transactional id (not None). The response is an
        `InitProducerIdResponse`."""
        pending = PendingRequest(deferred, TransactionApi.INIT_PRODUCER_ID, api_version)
        id_, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        assert id_ is not None, "a producer without a transactional id has no coordinator"
        expected = Producer(request.producer_id, request.producer_epoch)
        outcome: rules.Transition
        if (expected.id == -1) != (expected.epoch == -1) or not id_:
            outcome = ErrorCode.INVALID_REQUEST
        elif not 0 < timeout_ms <= self.settings.max_timeout_ms:
            outcome = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        elif self._state_manager.is_busy(id_):
            outcome = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.initialize(
                self.transactions.get(id_),
                None if expected == rules.NO_PRODUCER else expected,
                timeout_ms,
                self.transaction_version,
                fresh_producer_id,
                now.wall_ms,
            )
        step, write = self._respond_or_write(id_, outcome, pending, now)
        if write is not None and isinstance(outcome, TransactionMetadata):
            if outcome.is_decided:
                # The open transaction of the earlier producer is aborted first; the client retries.
                write.error = ErrorCode.CONCURRENT_TRANSACTIONS
                step.log_event("open transaction aborted for a new producer", id_, outcome.producer, notable=True)
            else:
                write.producer = outcome.producer
        return step

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        api_version: int,
        deferred: DeferredResponse,
        now: Instant,
    ) -> TransactionStep:
        """Handle one transaction of AddPartitionsToTxn v0-5 without `verify_only`. The response is the `ErrorCode` of
        all partitions."""
        pending = PendingRequest(deferred, TransactionApi.ADD_PARTITIONS, api_version)
        version = EPOCH_BUMP_FROM if pending.supports_epoch_bump else 0
        return self._add(transactional_id, producer, partitions, version, pending, now)

    def add_offsets(
        self,
        transactional_id: str,
        producer: Producer,
        partition: TopicPartition,
        api_version: int,
        deferred: DeferredResponse,
        now: Instant,
    ) -> TransactionStep:
        """Handle AddOffsetsToTxn v0-4 for a group in this partition of `__consumer_offsets`. The response is an
        `ErrorCode`."""
        pending = PendingRequest(deferred, TransactionApi.ADD_OFFSETS, api_version)
        return self._add(transactional_id, producer, (partition,), 0, pending, now)

    def add_error(self, transactional_id: str, producer: Producer) -> ErrorCode:
        """The error for a fenced or unknown producer, returned even while the id is busy; NONE for others."""
        return rules.add_error(self.transactions.get(transactional_id), producer)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Handle one transaction of AddPartitionsToTxn v4-5 with `verify_only`."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        return rules.verify(self.transactions.get(transactional_id), producer, partitions)

    def end_txn(
        self,
        request: EndTxnRequest,
        api_version: int,
        fresh_producer_id: int | None,
        deferred: DeferredResponse,
        now: Instant,
    ) -> TransactionStep:
        """Handle EndTxn. The response, an `EndTxnResponse`, is sent when the decision is written; v5 returns the
        producer's new id and epoch."""
        id_ = request.transactional_id
        producer = Producer(request.producer_id, request.producer_epoch)
        current = self.transactions.get(id_)
        pending = PendingRequest(deferred, TransactionApi.END_TXN, api_version)
        outcome: rules.Transition
        if not id_:
            outcome = ErrorCode.INVALID_REQUEST
        elif not pending.supports_epoch_bump:
            # A fenced producer gets its error even while the id is busy.
            outcome = rules.identity_error(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
            if not self._state_manager.is_busy(id_):
                outcome = rules.end_without_epoch_bump(current, producer, request.committed, now.wall_ms)
        elif self._state_manager.is_busy(id_):
            outcome = rules.end_error(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.end(current, producer, request.committed, fresh_producer_id, now.wall_ms)
        step, write = self._respond_or_write(id_, outcome, pending, now)
        if write is not None and isinstance(outcome, TransactionMetadata):
            write.producer = outcome.complete(now.wall_ms).producer
        return step

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        pending: PendingRequest,
        now: Instant,
    ) -> TransactionStep:
        current = self.transactions.get(transactional_id)
        outcome: rules.Transition
        if not transactional_id:
            outcome = ErrorCode.INVALID_REQUEST
        elif self._state_manager.is_busy(transactional_id):
            # A fenced producer gets its error even while the id is busy.
            outcome = rules.add_error(current, producer) or ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            outcome = rules.add(current, producer, partitions, client_version, now.wall_ms)
        step, _ = self._respond_or_write(transactional_id, outcome, pending, now)
        return step

    def _respond_or_write(
        self, transactional_id: str, outcome: rules.Transition, pending: PendingRequest, now: Instant
    ) -> tuple[TransactionStep, TransactionWrite | None]:
        """Respond if there is an error or nothing to write; otherwise write, and let the request wait."""
        step = TransactionStep(now)
        if isinstance(outcome, TransactionMetadata) and pending.supports_epoch_bump and not self.transaction_version:
            # Under transaction.version 0, records cannot store the client's transaction version. A client that knows
            # the cluster's level does not send this API version.
            outcome = ErrorCode.UNSUPPORTED_VERSION
        if isinstance(outcome, TransactionMetadata):
            return step, self._state_manager.write(step, transactional_id, outcome, pending)
        if outcome:
            step.respond(pending, outcome)
        else:
            step.respond(pending, outcome, self.transactions[transactional_id].producer)
        return step, None

    # -- completed writes -----------------------------------------------------------------------------------------

    def written(self, write: TransactionWrite, error: ErrorCode, now: Instant) -> TransactionStep:
        """Handle the end of an append. With NONE the records are replayed already, otherwise the append failed.

        After REQUEST_TIMED_OUT the records are in the log and may still be committed. The request gets its response,
        and the ids stay busy until `written` is called again, with NONE after the records are replayed, or until
        `unload`."""
        return self._state_manager.written(write, error, now)

    def markers_written(
        self, markers: TransactionMarkers, partitions: Collection[TopicPartition], now: Instant
    ) -> TransactionStep:
        """Record that these partitions have their marker, or need none (deleted, or the producer has a newer epoch
        there). After the last partition, complete the transaction. A partition that is reported twice, and markers of
        an earlier transaction or coordinator epoch, change nothing."""
        return self._state_manager.markers_written(markers, partitions, now)

    # -- time -----------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """A time at or before the next deadline, on the clock of timeouts; None if there is no deadline."""
        return self._state_manager.next_ms()

    def handle_deadlines(self, now: Instant, generate_producer_id: GenerateProducerId) -> Iterator[TransactionStep]:
        """Abort timed-out transactions, and retry completions that could not be written. The iterator makes each step
        only when the caller takes it. If `generate_producer_id` returns None, the abort is retried later."""
        return self._state_manager.handle_deadlines(now, generate_producer_id)

    def expire_ids(self, now: Instant) -> Iterator[TransactionStep]:
        """Write tombstones of transactional ids without an open transaction that were not used for
        `transactional.id.expiration.ms`. The shell calls this every
        `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        until_ms = now.wall_ms - self.settings.id_expiration_ms
        batch: list[str] = []
        size = 0
        for id_ in list(self.transactions):
            # A request may have changed it since the last batch.
            transaction = self.transactions.get(id_)
            if transaction is None or self._state_manager.is_busy(id_):
                continue
            if not transaction.is_open and transaction.updated_ms <= until_ms:
                batch.append(id_)
                size += 4 * len(id_) + 32
            if size > TOMBSTONES_BYTES_MAX:
                yield self._expire_batch(batch, now)
                batch, size = [], 0
        if batch:
            yield self._expire_batch(batch, now)

    def _expire_batch(self, transactional_ids: Sequence[str], now: Instant) -> TransactionStep:
        step = TransactionStep(now)
        self._state_manager.write_tombstones(step, transactional_ids)
        for id_ in transactional_ids:
            step.log_event("transactional id expired", id_, self.transactions[id_].producer)
        return step

    # -- administration -------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        if not transactional_id:
            return not_described(transactional_id, ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return described(transactional_id, transaction, self._state_manager.unmarked(transactional_id))

    @property
    def markers_left(self) -> int:
        """The number of markers of decided transactions that are not known to be written."""
        return self._state_manager.markers_left

    def list(
        self, transaction_filter: TransactionFilter, now: Instant
    ) -> Iterator[ListTransactionsResponse.TransactionState | None]:
        """Return a row for each transactional id of now, made when the caller takes it: None if the id does not pass
        the filter, so that the caller can serve other requests before it tests the next id."""
        return (
            listed(id_, transaction) if transaction_filter.passes(id_, transaction, now.wall_ms) else None
            for id_, transaction in list(self.transactions.items())
        )

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record that is committed, or that was read from the log while loading."""
        self._state_manager.replay(record)

    def loaded(self, coordinator_epoch: int, now: Instant) -> TransactionStep:
        """After all records are replayed, send the markers of decided transactions that are not complete."""
        return self._state_manager.loaded(coordinator_epoch, now)

    def unload(self, now: Instant) -> TransactionStep:
        """Drop all transactions, and fail pending requests with NOT_COORDINATOR: another broker is the coordinator."""
        return self._state_manager.unload(now)
