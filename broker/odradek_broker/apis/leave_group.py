"""LeaveGroup (key 13): a member leaves its group, or an admin client removes static members.

Versions: v3 names several members (KIP-345), v5 has a reason (KIP-800), which the coordinator ignores.
Behaviour: before v3 the response has one error, that of the member.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.group_client import group_client
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.classic_kind import LEAVE_GROUP
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

BATCH_FROM = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.api_version >= BATCH_FROM:
        return ctx.broker.group_coordinator.handle(LEAVE_GROUP, request, group_client(ctx))
    request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    response = ctx.broker.group_coordinator.handle(LEAVE_GROUP, request, group_client(ctx))
    return response.map(_response_before_v3) if isinstance(response, Deferred) else _response_before_v3(response)


def _response_before_v3(response: LeaveGroupResponse) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        error_code=response.error_code or next((member.error_code for member in response.members), ErrorCode.NONE)
    )


API = Api(LeaveGroupRequest, LeaveGroupResponse, handle)
