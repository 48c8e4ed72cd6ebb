"""ListConfigResources (key 74): the resources that have a configuration of their own (KIP-1142).

Versions: v0 is ListClientMetricsResources, and lists only client-metrics subscriptions; v1 lists all types or some.
Behaviour: UNSUPPORTED_VERSION for a type that the broker does not know.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_controller.configs.table import Resource
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_LISTED = (
    Resource.TOPIC,
    Resource.BROKER,
    Resource.BROKER_LOGGER,
    Resource.CLIENT_METRICS,
    Resource.GROUP,
)


def handle(ctx: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.api_version == 0:
        wanted = {int(Resource.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or {int(kind) for kind in _LISTED}
    if not wanted <= {int(kind) for kind in _LISTED}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(name, kind)
            for kind in _LISTED
            if kind in wanted
            for name in _names(ctx, kind)
        ]
    )


def _names(ctx: Context, kind: Resource) -> list[str]:
    image = ctx.broker.image
    match kind:
        case Resource.TOPIC:
            return sorted(image.topics)
        case Resource.BROKER | Resource.BROKER_LOGGER:
            return [str(broker.id) for broker in sorted(image.live_brokers(), key=lambda broker: broker.id)]
        case _:
            return sorted(resource.name for resource in image.configs if resource.type == kind)


API = Api(ListConfigResourcesRequest, ListConfigResourcesResponse, handle)
