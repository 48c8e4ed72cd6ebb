"""ControlledShutdown (key 7): a broker that shuts down asks the controller to move its leaderships.

Versions: v1 has a client id in the header, v2 broker epochs, v3 is flexible.
Behaviour: the response names the partitions that this broker must still lead. Only the controller of a ZooKeeper
cluster serves it; another broker responds STALE_CONTROLLER_EPOCH.
Differences from Kafka: v0 is not served.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


async def handle(ctx: Context, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: ControlledShutdownResponse = await ctx.broker.control_requests.handle(request)
    return response


def error_response(ctx: Context, request: ControlledShutdownRequest, error: ErrorCode) -> ControlledShutdownResponse:
    """Return an error response; as in Kafka, a broker that is not the controller returns STALE_CONTROLLER_EPOCH."""
    moved = error is ErrorCode.NOT_CONTROLLER
    return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH if moved else error)


API = Api(ControlledShutdownRequest, ControlledShutdownResponse, handle, error_response=error_response)
