"""LeaveGroup (key 13): a member goes, or an administrator takes several out (from v3 on, KIP-345).

v5 may give a reason (KIP-800), which is not kept. Serves the classic protocol.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

BATCH_FROM = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not ctx.may_group(Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.api_version >= BATCH_FROM:
        return ctx.broker.groups.leave(request)
    request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    answer = ctx.broker.groups.leave(request)
    return LeaveGroupResponse(
        error_code=answer.error_code or next((member.error_code for member in answer.members), ErrorCode.NONE)
    )


API = Api(LeaveGroupRequest, LeaveGroupResponse, handle)
