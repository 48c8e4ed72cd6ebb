"""One partition of `__transaction_state`: all transactional ids that it holds.

Owns the transactions by transactional id, which of them are busy (a record of theirs, or their markers, are under way),
what follows once a record is written, and what time brings about. The rules of requests are in `transaction_requests`;
appending, waiting, sending markers and answering are the shell's.

A transaction changes in `replay` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from odradek_broker.core.group_deadlines import Instant
from odradek_broker.core.transaction import Producer, TopicPartition, Transaction
from odradek_broker.core.transaction_records import TransactionRecord
from odradek_broker.core.transaction_step import MarkerWork, Step, Token, TransactionSettings, Write
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class TransactionShard:
    """Methods that lead to anything but their result return a `Step`.

    Every token gets exactly one answer, in some step: in this one, in that of `written`, or in that of `unload`."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.transaction_version = 0
        """The cluster's level of `transaction.version`; the shell sets it, at any time."""

    # -- requests -------------------------------------------------------------------------------------------------

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId or EndTxn of this id, asked for now, may take a fresh producer id: it is unknown, or
        its epochs are used up. If that changes before the request is made, the answer is CONCURRENT_TRANSACTIONS."""
        raise NotImplementedError

    def init_producer_id(
        self, request: InitProducerIdRequest, api_version: int, fresh_id: int | None, token: Token, now: Instant
    ) -> Step:
        """With a transactional id (not None). Versions 0-5; answered with an `InitProducerIdResponse`."""
        raise NotImplementedError

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        api_version: int,
        token: Token,
        now: Instant,
    ) -> Step:
        """One transaction of AddPartitionsToTxn v0-5, not verify-only; answered with an `ErrorCode`, that of each
        partition."""
        raise NotImplementedError

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], api_version: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        """One transaction of AddPartitionsToTxn v4-5, verify-only."""
        raise NotImplementedError

    def add_offsets(
        self,
        transactional_id: str,
        producer: Producer,
        partition: TopicPartition,
        api_version: int,
        token: Token,
        now: Instant,
    ) -> Step:
        """AddOffsetsToTxn v0-4, with the partition of `__consumer_offsets` of its group; answered with an
        `ErrorCode`."""
        raise NotImplementedError

    def end_txn(
        self, request: EndTxnRequest, api_version: int, fresh_id: int | None, token: Token, now: Instant
    ) -> Step:
        """Answered with an `EndTxnResponse` once the decision is written; v5 tells who produces from now on."""
        raise NotImplementedError

    # -- what the shell reports -----------------------------------------------------------------------------------

    def written(self, write: Write, error: ErrorCode, now: Instant) -> Step:
        """What became of a step's records, as the log says it: NONE when they have been replayed, else why not.

        REQUEST_TIMED_OUT: they are in the log, and may yet take effect. Whoever waits is told, and the ids stay busy
        until `written` is called once more, with NONE when they have been replayed (or until `unload`)."""
        raise NotImplementedError

    def markers_written(self, work: MarkerWork, partitions: Collection[TopicPartition], now: Instant) -> Step:
        """These partitions have their marker, or need none any more (deleted, or fenced by a newer epoch). When that is
        true of all, the transaction is completed. Reporting a partition twice, or outdated work, does nothing."""
        raise NotImplementedError

    # -- time -----------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """A moment, on the clock of timeouts, at or before which nothing is to be done; None while nothing is."""
        raise NotImplementedError

    def expired(self, now: Instant) -> Iterable[Step]:
        """Abandoned transactions are aborted, and writes that failed are made again. To be used up: each step is worked
        out when it is taken."""
        raise NotImplementedError

    def expire_ids(self, now: Instant) -> Iterable[Step]:
        """Transactional ids without an open transaction that nobody has used for `transactional.id.expiration.ms` are
        forgotten. For the shell to call every `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        raise NotImplementedError

    # -- administration -------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        raise NotImplementedError

    def list(
        self, request: ListTransactionsRequest, now: Instant
    ) -> Iterable[ListTransactionsResponse.TransactionState]:
        """Those that pass all filters. The pattern of v2 must be valid: see `transaction_listing.pattern_error`."""
        raise NotImplementedError

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        """A record is in the log for good, or (at loading) was found there."""
        raise NotImplementedError

    def loaded(self, coordinator_epoch: int, now: Instant) -> Step:
        """All records are replayed. Decided transactions that were not completed get their markers sent (again)."""
        raise NotImplementedError

    def unload(self, now: Instant) -> Step:
        """Somebody else coordinates these transactions now: whoever waits is sent there."""
        raise NotImplementedError
