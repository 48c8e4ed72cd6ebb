"""Who may alter which configurations, and where: what both AlterConfigs APIs ask before the controller hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_controller.commands.node_ids import parse_node_id
from odradek_controller.configs.table import Resource
from odradek_wire.errors import ErrorCode


class Named(Protocol):
    """What both requests name."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Named)
Refused = tuple[ErrorCode, str | None, int, str]
"""What both responses tell of a resource, in the order of their fields."""


def may_alter(ctx: Context, resources: Sequence[R]) -> tuple[list[R], list[Refused]]:
    """Those that the client may alter at this broker, and the others, each once."""
    refused: dict[tuple[int, str], Refused] = {}
    allowed = []
    for each in resources:
        kind, name = each.resource_type, each.resource_name
        error = _refusal(ctx, kind, name)
        if error is not None:
            refused[kind, name] = (error, None, kind, name)
        elif _is_of_another_broker(ctx, kind, name):
            message = f"Unexpected broker id, expected {ctx.broker.node_id}, but received {name}"
            refused[kind, name] = (ErrorCode.INVALID_REQUEST, message, kind, name)
        else:
            allowed.append(each)
    return allowed, list(refused.values())


def _is_of_another_broker(ctx: Context, kind: int, name: str) -> bool:
    """A broker's own configuration is changed there; what is no number is for the controller to refuse."""
    return kind == Resource.BROKER and parse_node_id(name) not in (None, ctx.broker.node_id)


def _refusal(ctx: Context, kind: int, name: str) -> ErrorCode | None:
    """Brokers, loggers and subscriptions belong to the cluster; unknown kinds are for the controller to refuse."""
    match kind:
        case Resource.TOPIC:
            return None if ctx.may_topic(Operation.ALTER_CONFIGS, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case Resource.GROUP:
            return None if ctx.may_group(Operation.ALTER_CONFIGS, name) else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            return None if ctx.may_cluster(Operation.ALTER_CONFIGS) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
