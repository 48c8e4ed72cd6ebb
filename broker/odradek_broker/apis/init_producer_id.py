"""InitProducerId (key 22): a producer id and epoch for an idempotent or a transactional producer.

Versions: v2 is flexible; v3 has the producer id and epoch with which a producer continues after an error (KIP-360). v6
(KIP-939) is not served: it is unstable in Kafka 4.3, which does not advertise it by default.
Behaviour: producer ids come from the controller in blocks, so that they are unique in the cluster. With a transactional
id the transaction coordinator fences earlier producers and aborts their open transaction.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.metadata.producer_ids import NoProducerIdsError
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return error_response(ctx, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not ctx.may_cluster(Operation.IDEMPOTENT_WRITE):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        return ctx.broker.transaction_coordinator.init_producer_id(request, ctx.api_version)
    producer_id = ctx.broker.producer_ids.next_of_block()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_allocation(ctx, request)


async def _after_allocation(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.next(), producer_epoch=0)
    except NoProducerIdsError:
        # A retriable error, as in Kafka.
        return error_response(ctx, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def error_response(ctx: Context, request: InitProducerIdRequest, error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


API = Api(InitProducerIdRequest, InitProducerIdResponse, handle, error_response=error_response)
