"""LeaderAndIsr (key 4, versions 0-7): ZooKeeper mode's controller says what this broker leads and follows."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

FIRST_VERSION_BY_TOPIC = 5


async def handle(ctx: Context, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: LeaderAndIsrResponse = await ctx.broker.control_requests.handle(request)
    if ctx.api_version >= FIRST_VERSION_BY_TOPIC:
        response.partition_errors = []
    else:
        response.topics = []
    return response


API = Api(LeaderAndIsrRequest, LeaderAndIsrResponse, handle)
