"""StopReplica (key 5, versions 0-4): ZooKeeper mode's controller takes replicas from this broker."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(ctx: Context, request: StopReplicaRequest) -> StopReplicaResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: StopReplicaResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(StopReplicaRequest, StopReplicaResponse, handle)
