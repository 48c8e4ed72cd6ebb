"""UnregisterBroker (key 64): remove the registration of a broker that has left the cluster for good.

Versions: only v0.
Behaviour: authorizes, then submits the request to the controller.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(ctx: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return UnregisterBrokerResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    response: UnregisterBrokerResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


API = Api(UnregisterBrokerRequest, UnregisterBrokerResponse, handle)
