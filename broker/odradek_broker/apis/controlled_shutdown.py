"""ControlledShutdown (key 7, versions 1-3): a broker wants to go, and asks the controller for other leaders."""

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


def failed(ctx: Context, request: ControlledShutdownRequest, error: ErrorCode) -> ControlledShutdownResponse:
    """That the controller is another broker has a name of its own here, as it did before there was NOT_CONTROLLER."""
    elsewhere = error is ErrorCode.NOT_CONTROLLER
    return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH if elsewhere else error)


API = Api(ControlledShutdownRequest, ControlledShutdownResponse, handle, failed=failed)
