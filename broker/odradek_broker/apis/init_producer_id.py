"""InitProducerId (key 22), versions 0-5: an identity for an idempotent producer.

Producer ids come from the controller in blocks, so that they are unique in the cluster and after a restart.
Transactions are not served yet: a transactional id is refused for good, so that a client fails at once instead of
trying again. Version 6 is unstable in 4.3 and not offered.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        return InitProducerIdResponse(
            error_code=ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION, producer_epoch=-1
        )
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if not ctx.may_cluster(Operation.IDEMPOTENT_WRITE):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)
    producer_id = ctx.broker.producer_ids.next_now()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_allocation(ctx)


async def _after_allocation(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.next(), producer_epoch=0)


API = Api(
    InitProducerIdRequest,
    InitProducerIdResponse,
    handle,
    notes="Only without a transactional id.",
)
