"""IncrementalAlterConfigs (key 44), versions 0-1: single overrides set, deleted, appended to, subtracted from."""

from __future__ import annotations

from odradek_broker.api import Api
from odradek_broker.config_authorization import refusal_to_alter
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    refused = {
        (each.resource_type, each.resource_name): error
        for each in request.resources
        if (error := refusal_to_alter(ctx, each.resource_type, each.resource_name)) is not None
    }
    allowed = [each for each in request.resources if (each.resource_type, each.resource_name) not in refused]
    response = await ctx.broker.controller.incremental_alter_configs(
        IncrementalAlterConfigsRequest(allowed, request.validate_only)
    )
    response.responses += [Result(error, None, kind, name) for (kind, name), error in refused.items()]
    return response


def failed(ctx: Context, request: IncrementalAlterConfigsRequest, error: ErrorCode) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[Result(error, None, each.resource_type, each.resource_name) for each in request.resources]
    )


API = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, handle, failed=failed)
