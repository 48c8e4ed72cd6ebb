"""DescribeQuorum (key 55), versions 0-2: the metadata log's one voter, which is this node, and how far it is."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


async def handle(ctx: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not ctx.may_cluster(Operation.DESCRIBE):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: DescribeQuorumResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


API = Api(DescribeQuorumRequest, DescribeQuorumResponse, handle)
