"""ApiVersions (key 18): the APIs and versions of this broker, before a client knows anything else.

Versions: v1 has a throttle time, v3 is flexible and names the client's software (KIP-511), v4 allows features from
level 0 on.
Behaviour: the response has header v0 in every version. A request in an unknown version gets a v0 response with
UNSUPPORTED_VERSION and the versions of ApiVersions alone (KIP-511), which the connection sends. Produce is listed from
v0, because librdkafka sends compressed batches only to brokers that list v0 (KAFKA-18659).
Differences from Kafka: a feature that announces a protocol to clients, such as group.version, is listed only if its
APIs are served. If Kafka has finalized it in the data directory, its level stays in the metadata log.
"""

from __future__ import annotations

import re

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_controller.levels import served_features
from odradek_wire.apis import APIS, ApiKey
from odradek_wire.codec import encode
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The names and versions of client software that KIP-511 allows, because they become part of a metric's name."""


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.client_software = (name, version)
    image, emulation, served = ctx.broker.image, ctx.broker.emulation, ctx.connection.routes.table.served
    stores_features = ctx.broker.metadata_source.stores_features
    supported = served_features(emulation.advertised_features(ctx.api_version), served) if stores_features else {}
    return ApiVersionsResponse(
        api_keys=_advertised(ctx),
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name, levels.low, levels.high) for name, levels in supported.items()
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            # In the order of the supported ones, as Kafka lists them.
            ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
            for name in served_features(emulation.supported, served)
            if (level := image.levels.level(name)) > 0
        ],
    )


def _advertised(ctx: Context) -> list[ApiVersionsResponse.ApiVersion]:
    emulated = ctx.broker.metadata_source.apis
    routes = ctx.connection.routes
    if emulated is None:
        ranges = routes.versions()
    else:
        inter_broker = routes.table.inter_broker_only_versions() if routes.inter_broker else {}
        ranges = dict(sorted({**emulated, **inter_broker}.items()))
    return [ApiVersionsResponse.ApiVersion(key, low, high) for key, (low, high) in ranges.items()]


def unsupported_version_body() -> bytes:
    """Return the body of the response to an ApiVersions request in an unknown version."""
    low, high = APIS[ApiKey.API_VERSIONS].versions
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(ApiKey.API_VERSIONS, low, high)],
    )
    return encode(response, 0)


API = Api(ApiVersionsRequest, ApiVersionsResponse, handle)
