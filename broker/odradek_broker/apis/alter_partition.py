"""AlterPartition (key 56, versions 2-3): a leader proposes who is in sync (KIP-497); the controller decides."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(ctx: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: AlterPartitionResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(AlterPartitionRequest, AlterPartitionResponse, handle)
