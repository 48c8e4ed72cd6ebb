"""JoinGroup (key 11): a member asks to take part in the next generation of its group.

Versions: v1 has the rebalance timeout, v4 first returns a member id with an error (KIP-394), v5 has static members
(KIP-345), v7 names the protocol type (KIP-559), v9 lets a group leader that is static and rejoins skip the assignment
(KIP-814).
Behaviour: the response comes when the join phase ends.
Differences from Kafka: when a member sends another JoinGroup, its pending one gets REBALANCE_IN_PROGRESS; Kafka never
responds to that.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.group_client import group_client
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.classic_kind import JOIN_GROUP
from odradek_broker.groups.core.classic_step import join_error
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_NAME_FROM = 7


def handle(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return error_response(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response = ctx.broker.group_coordinator.handle(
        JOIN_GROUP, request, group_client(ctx, new_member=not request.member_id)
    )
    if not isinstance(response, Deferred):
        return _for_version(response, ctx.api_version)
    if ctx.api_version >= NULL_PROTOCOL_NAME_FROM:
        return response
    return response.map(lambda joined: _for_version(joined, ctx.api_version))


def error_response(ctx: Context, request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return _for_version(join_error(error), ctx.api_version)


def _for_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if response.protocol_name is None and version < NULL_PROTOCOL_NAME_FROM:
        response.protocol_name = ""
    return response


API = Api(JoinGroupRequest, JoinGroupResponse, handle, error_response=error_response)
