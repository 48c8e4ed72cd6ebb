"""DescribeTransactions (key 65): the state of transactions by transactional id (KIP-664).

Versions: only v0.
Behaviour: a transaction has only the topics that the client may describe, and no partition with a written marker.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

TransactionState = DescribeTransactionsResponse.TransactionState


def handle(ctx: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_describe(ctx, each) for each in request.transactional_ids])


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    if not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    state = ctx.broker.transaction_coordinator.describe(transactional_id)
    state.topics = [each for each in state.topics if ctx.may_topic(Operation.DESCRIBE, each.topic)]
    return state


def error_response(
    ctx: Context, request: DescribeTransactionsRequest, error: ErrorCode
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=error) for each in request.transactional_ids
        ]
    )


API = Api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    handle,
    error_response=error_response,
    slices=Slices("transactional_ids", "transaction_states"),
)
