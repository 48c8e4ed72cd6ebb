"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Versions: v1 filters by the duration of transactions (KIP-994), v2 by a pattern (KIP-1152).
Behaviour: COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__transaction_state`. The response has
only ids that the client may describe.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, run_in_slices
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.transactions.core.transaction_listing import TransactionFilter
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(ctx: Context, request: ListTransactionsRequest) -> ListTransactionsResponse | Sliced:
    transaction_filter = TransactionFilter.of(request)
    if isinstance(transaction_filter, ErrorCode):
        return ListTransactionsResponse(error_code=transaction_filter)
    rows = ctx.broker.transaction_coordinator.list(transaction_filter)
    if isinstance(rows, ErrorCode):
        return ListTransactionsResponse(error_code=rows)
    response = ListTransactionsResponse(unknown_state_filters=list(transaction_filter.unknown_states))
    return run_in_slices(_respond(ctx, response, rows))


def _respond(
    ctx: Context, response: ListTransactionsResponse, rows: Iterator[ListTransactionsResponse.TransactionState | None]
) -> Generator[int, None, ListTransactionsResponse]:
    for row in rows:
        if row is not None and ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, row.transactional_id):
            response.transaction_states.append(row)
        yield 1
    return response


API = Api(ListTransactionsRequest, ListTransactionsResponse, handle)
