"""AllocateProducerIds (key 67): the controller allocates a block of producer ids to a broker (KIP-730).

Versions: only v0.
Behaviour: only the controller of a ZooKeeper cluster serves it, on the listener between brokers.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(ctx: Context, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: AllocateProducerIdsResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(AllocateProducerIdsRequest, AllocateProducerIdsResponse, handle)
