"""Heartbeat (key 12): a member tells its coordinator that it is alive, and hears whether the group rebalances.

v3 knows static members (KIP-345). Serves the classic protocol.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    if not ctx.may_group(Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return HeartbeatResponse(error_code=ctx.broker.groups.heartbeat(request))


API = Api(HeartbeatRequest, HeartbeatResponse, handle)
