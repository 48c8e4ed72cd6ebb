"""AlterConfigs (key 33): replace all overrides of a resource (IncrementalAlterConfigs is its successor).

Versions: v2 is flexible.
Behaviour: authorizes, then submits the request to the controller. A broker alters only its own configuration.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.config_authorization import split_by_authorization
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

AlterConfigsResourceResponse = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    allowed, refused = split_by_authorization(ctx, request.resources)
    submitted = AlterConfigsRequest(allowed, request.validate_only)
    response: AlterConfigsResponse = await ctx.broker.controller_channel.submit(submitted, ctx.principal)
    response.responses += [AlterConfigsResourceResponse(*each) for each in refused]
    return response


def error_response(ctx: Context, request: AlterConfigsRequest, error: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, None, each.resource_type, each.resource_name)
            for each in request.resources
        ]
    )


API = Api(
    AlterConfigsRequest,
    AlterConfigsResponse,
    handle,
    error_response=error_response,
    slices=Slices("resources", "responses", elements=10),
)
