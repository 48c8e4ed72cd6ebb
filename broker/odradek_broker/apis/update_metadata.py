"""UpdateMetadata (key 6, versions 0-8): ZooKeeper mode's controller says what clients are to see."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(ctx: Context, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: UpdateMetadataResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(UpdateMetadataRequest, UpdateMetadataResponse, handle)
