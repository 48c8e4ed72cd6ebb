"""UpdateFeatures (key 57): change the level of a feature (KIP-584).

Versions: v1 has `validate_only` and the type of upgrade (KIP-584), v2 returns no results of single features.
Behaviour: authorizes, then submits the request to the controller.
Differences from Kafka: only transaction.version can change; other levels are those of the emulated release.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def handle(ctx: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    response: UpdateFeaturesResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


API = Api(UpdateFeaturesRequest, UpdateFeaturesResponse, handle)
