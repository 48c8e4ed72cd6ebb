"""SyncGroup (key 14): the leader brings the assignment, everybody takes his part home.

v3 knows static members (KIP-345), v5 must name protocol type and name (KIP-559). Serves the classic protocol.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_FROM = 5


def handle(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    named = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= PROTOCOL_REQUIRED_FROM and not named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.may_group(Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.groups.sync(request)


API = Api(SyncGroupRequest, SyncGroupResponse, handle)
