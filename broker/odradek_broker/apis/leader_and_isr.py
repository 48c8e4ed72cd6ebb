"""LeaderAndIsr (key 4, versions 0-7): ZooKeeper mode's controller says what this broker leads and follows."""

from __future__ import annotations

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(ctx: Context, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await ctx.broker.as_member.leader_and_isr(request)


API = Api(LeaderAndIsrRequest, LeaderAndIsrResponse, handle)
