"""DescribeClientQuotas (key 48): the quotas of users, clients and addresses (KIP-546).

Versions: v1 is flexible.
Behaviour: lists the quotas of entities that match all components of the request. With `strict`, an entity with a
further part does not match.
Differences from Kafka: the only quotas are those that Kafka has stored in the data directory or that are in ZooKeeper,
and they limit no client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

ENTITY_TYPES = ("user", "client-id", "ip")


class MatchType(IntEnum):
    """How a component matches the part of an entity: its name, the default entity (no name), or any name."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


ComponentData = DescribeClientQuotasRequest.ComponentData
EntryData = DescribeClientQuotasResponse.EntryData


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    invalid = _invalid_filter(request.components)
    if invalid is not None:
        error, message = invalid
        return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
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


def _invalid_filter(components: Iterable[ComponentData]) -> tuple[ErrorCode, str] | None:
    """Return the error of components that Kafka's ClientQuotasImage refuses."""
    known: set[str] = set()
    for component in components:
        entity_type, match_type = component.entity_type, component.match_type
        if not entity_type:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if entity_type in known:
            return ErrorCode.INVALID_REQUEST, f"Entity type {entity_type} cannot appear more than once in the filter."
        if entity_type not in ENTITY_TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}"
        if match_type not in {*MatchType}:
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}"
        name = f"MATCH_TYPE_{MatchType(match_type).name}"
        if match_type == MatchType.EXACT and component.match is None:
            return ErrorCode.INVALID_REQUEST, f"Request specified {name}, but set match string to null."
        if match_type != MatchType.EXACT and component.match is not None:
            return ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string."
        known.add(entity_type)
    if "ip" in known and len(known) > 1:
        return ErrorCode.INVALID_REQUEST, (
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return None


def _is_requested(entity: Mapping[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    """Return whether the entity matches all components and, if the request is `strict`, has no other parts."""
    if request.strict and entity.keys() != {component.entity_type for component in request.components}:
        return False
    return all(_matches(entity, component) for component in request.components)


def _matches(entity: Mapping[str, str | None], component: ComponentData) -> bool:
    if component.entity_type not in entity:
        return False
    name = entity[component.entity_type]
    if component.match_type == MatchType.SPECIFIED:
        return True
    return name == component.match  # null is the default entity


API = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, handle)
