"""The checks of AlterConfigs and IncrementalAlterConfigs before they submit a request to the controller.

Owns the authorization of each resource, and the rule that a broker alters only its own configuration. Leaves the
configurations to the controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_controller.commands.integers import parse_int
from odradek_controller.configs.table import Resource
from odradek_wire.errors import ErrorCode


class ConfigResourceRequest(Protocol):
    """A resource in a request of either API."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=ConfigResourceRequest)


class RefusedResource(NamedTuple):
    """A resource in the response of either API, with its fields in order."""

    error: ErrorCode
    message: str | None
    resource_type: int
    resource_name: str


def split_by_authorization(ctx: Context, resources: Sequence[R]) -> tuple[list[R], list[RefusedResource]]:
    """Return the resources that the client may alter on this broker, and the refused ones, each once."""
    refused: dict[tuple[int, str], RefusedResource] = {}
    allowed = []
    for each in resources:
        kind, name = each.resource_type, each.resource_name
        error = _authorization_error(ctx, kind, name)
        if error is not None:
            refused[kind, name] = RefusedResource(error, None, kind, name)
        elif _is_of_another_broker(ctx, kind, name):
            message = f"Unexpected broker id, expected {ctx.broker.node_id}, but received {name}"
            refused[kind, name] = RefusedResource(ErrorCode.INVALID_REQUEST, message, kind, name)
        else:
            allowed.append(each)
    return allowed, list(refused.values())


def _is_of_another_broker(ctx: Context, kind: int, name: str) -> bool:
    """Return whether this is the configuration of another broker. The controller refuses a name that is no number."""
    return kind == Resource.BROKER and parse_int(name) not in (None, ctx.broker.node_id)


def _authorization_error(ctx: Context, kind: int, name: str) -> ErrorCode | None:
    """Return the error for a resource that the client may not alter. The controller refuses unknown resource types."""
    match kind:
        case Resource.TOPIC:
            return None if ctx.may_topic(Operation.ALTER_CONFIGS, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case Resource.GROUP:
            return None if ctx.may_group(Operation.ALTER_CONFIGS, name) else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            return None if ctx.may_cluster(Operation.ALTER_CONFIGS) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
