"""Heartbeat (key 12): a member tells the group coordinator that it is alive.

Versions: v3 has static members (KIP-345).
Behaviour: REBALANCE_IN_PROGRESS while the group prepares a rebalance; the session timeout restarts unless the member is
unknown or its generation is not the current one.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.group_client import group_client
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.classic_kind import HEARTBEAT
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.group_coordinator.handle(HEARTBEAT, request, group_client(ctx))


API = Api(HeartbeatRequest, HeartbeatResponse, handle)
