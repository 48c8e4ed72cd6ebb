"""DescribeClientQuotas (key 48): the quotas of users, clients and addresses (KIP-546).

Versions: v1 is flexible.
Behaviour: lists the quotas of entities that match the request's components. With `strict`, an entity with other parts
does not match.
Differences from Kafka: quotas come only from a data directory or from ZooKeeper, and limit no client.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

ENTITY_TYPES = ("user", "client-id", "ip")
_EXACT, _DEFAULT = 0, 1
"""Match types; the third one, 2, matches any name."""

ComponentData = DescribeClientQuotasRequest.ComponentData
EntryData = DescribeClientQuotasResponse.EntryData


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    for component in request.components:
        if component.entity_type not in ENTITY_TYPES:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=f"Unsupported entity type {component.entity_type}",
                entries=None,
            )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                [DescribeClientQuotasResponse.EntityData(kind, name) for kind, name in entity.parts],
                [DescribeClientQuotasResponse.ValueData(key, value) for key, value in sorted(limits.items())],
            )
            for entity, limits in ctx.broker.image.security.client_quotas.items()
            if _is_requested(dict(entity.parts), request)
        ],
    )


def _is_requested(entity: Mapping[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    """Return whether the entity matches all components and, if the request is `strict`, has no other parts."""
    if request.strict and entity.keys() != {component.entity_type for component in request.components}:
        return False
    return all(_matches(entity, component) for component in request.components)


def _matches(entity: Mapping[str, str | None], component: ComponentData) -> bool:
    if component.entity_type not in entity:
        return False
    name = entity[component.entity_type]
    if component.match_type == _EXACT:
        return name is not None and name == component.match
    return component.match_type != _DEFAULT or name is None


API = Api(
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    handle,
)
