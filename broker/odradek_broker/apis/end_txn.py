"""EndTxn (key 26): commit or abort the open transaction.

Versions: v3 is flexible, v5 returns the producer's next id and epoch (KIP-890).
Behaviour: the response comes when the coordinator's decision is replicated; it does not wait for the markers.
Differences from Kafka: a producer may use the new producer id from a v5 response while its transaction completes; Kafka
returns INVALID_PRODUCER_ID_MAPPING. EndTxn v5 from a producer that InitProducerId has fenced gets PRODUCER_FENCED; if
the next producer has ended its transaction below v5, Kafka takes the request for a retry and returns the current epoch.
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
        return error_response(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return ctx.broker.transaction_coordinator.end_txn(request, ctx.api_version)


def error_response(ctx: Context, request: EndTxnRequest, error: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error, producer_epoch=-1)


API = Api(EndTxnRequest, EndTxnResponse, handle, error_response=error_response)
