"""Who may alter which configurations: what both AlterConfigs APIs ask before the controller hears of it."""

from __future__ import annotations

from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_controller.configs.table import Resource
from odradek_wire.errors import ErrorCode


def refusal_to_alter(ctx: Context, kind: int, name: str) -> ErrorCode | None:
    """Brokers, loggers and subscriptions belong to the cluster; unknown kinds are for the controller to refuse."""
    match kind:
        case Resource.TOPIC:
            return None if ctx.may_topic(Operation.ALTER_CONFIGS, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case Resource.GROUP:
            return None if ctx.may_group(Operation.ALTER_CONFIGS, name) else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            return None if ctx.may_cluster(Operation.ALTER_CONFIGS) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
