"""DescribeQuorum (key 55): the voters of the metadata log and their progress (KIP-595).

Versions: v1 has the times of the last fetches (KIP-836), v2 endpoints and directory ids (KIP-853).
Behaviour: the controller in this process is the only voter, and the leader.
Differences from Kafka: there are no observers.
"""

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
