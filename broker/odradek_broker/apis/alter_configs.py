"""AlterConfigs (key 33), versions 0-2: all overrides of a resource replaced. IncrementalAlterConfigs came after it."""

from __future__ import annotations

from odradek_broker.api import Api
from odradek_broker.config_authorization import refusal_to_alter
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

Result = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    refused = {
        (each.resource_type, each.resource_name): error
        for each in request.resources
        if (error := refusal_to_alter(ctx, each.resource_type, each.resource_name)) is not None
    }
    allowed = [each for each in request.resources if (each.resource_type, each.resource_name) not in refused]
    response = await ctx.broker.controller.alter_configs(AlterConfigsRequest(allowed, request.validate_only))
    response.responses += [Result(error, None, kind, name) for (kind, name), error in refused.items()]
    return response


def failed(ctx: Context, request: AlterConfigsRequest, error: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[Result(error, None, each.resource_type, each.resource_name) for each in request.resources]
    )


API = Api(AlterConfigsRequest, AlterConfigsResponse, handle, failed=failed)
