"""Rows of ListTransactions and DescribeTransactions, and the filters of ListTransactions.

Leaves authorization to the API modules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from odradek_broker.transactions.core.transaction_metadata import TopicPartition, TransactionMetadata, TransactionState
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_STATES = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filters of a ListTransactions request."""

    states: frozenset[TransactionState]
    unknown_states: tuple[str, ...]
    """Returned in the response. If the request has only unknown states, no transaction passes."""
    producer_ids: frozenset[int]
    duration_ms: int
    """Only transactions that began longer ago pass; if it is negative, all do."""
    pattern: Any
    """A compiled `re2` pattern, or None."""

    @staticmethod
    def of(request: ListTransactionsRequest) -> TransactionFilter | ErrorCode:
        """Return the filter, or INVALID_REGULAR_EXPRESSION (KIP-1152). As in Kafka patterns are RE2's, so that no
        pattern takes exponential time."""
        pattern = None
        if request.transactional_id_pattern:
            # Imported here, because few requests have a pattern.
            import re2

            options = re2.Options()
            options.log_errors = False
            try:
                pattern = re2.compile(request.transactional_id_pattern, options)
            except re2.error:
                return ErrorCode.INVALID_REGULAR_EXPRESSION
        return TransactionFilter(
            states=frozenset(_STATES[name] for name in request.state_filters if name in _STATES),
            unknown_states=tuple(dict.fromkeys(name for name in request.state_filters if name not in _STATES)),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            pattern=pattern,
        )

    def passes(self, transactional_id: str, transaction: TransactionMetadata, wall_ms: int) -> bool:
        """Whether the transactional id passes the filter. If it has had no transaction, its start is -1, so that it
        passes every duration, as in Kafka."""
        return (
            (not self.producer_ids or transaction.producer.id in self.producer_ids)
            and (not (self.states or self.unknown_states) or transaction.state in self.states)
            and (self.duration_ms < 0 or wall_ms - transaction.start_ms > self.duration_ms)
            and (self.pattern is None or self.pattern.fullmatch(transactional_id) is not None)
        )


def listed(transactional_id: str, transaction: TransactionMetadata) -> ListTransactionsResponse.TransactionState:
    """A row of ListTransactions."""
    return ListTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        producer_id=transaction.producer.id,
        transaction_state=transaction.state.label,
    )


def described(
    transactional_id: str, transaction: TransactionMetadata, partitions: Iterable[TopicPartition]
) -> DescribeTransactionsResponse.TransactionState:
    """A row of DescribeTransactions. `partitions` are those of the open transaction without their marker."""
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer.id,
        producer_epoch=transaction.producer.epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic, [index for _, index in of_topic])
            for topic, of_topic in groupby(sorted(partitions), key=lambda partition: partition[0])
        ],
    )


def not_described(transactional_id: str, error: ErrorCode) -> DescribeTransactionsResponse.TransactionState:
    """A row of DescribeTransactions with an error."""
    return DescribeTransactionsResponse.TransactionState(error_code=error, transactional_id=transactional_id)
