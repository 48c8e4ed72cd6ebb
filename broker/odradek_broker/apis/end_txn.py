"""EndTxn (key 26): the open transaction is committed or aborted.

Answered when the decision is in the coordinator's log, as in Kafka. From version 5 on the answer says in which epoch
the producer goes on (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def handle(ctx: Context, request: EndTxnRequest) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return failed(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return ctx.broker.transaction_coordinator.end_txn(request, ctx.api_version)


def failed(ctx: Context, request: EndTxnRequest, error: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error, producer_epoch=-1)


API = Api(EndTxnRequest, EndTxnResponse, handle, failed=failed)
