"""DescribeGroups (key 15): classic groups and their members.

Versions: v3 has authorized operations on request (KIP-430), v4 instance ids (KIP-345), v6 GROUP_ID_NOT_FOUND
(KIP-1043); before v6 a group that does not exist has the state Dead and no error.
Behaviour: only members of stable groups have subscriptions and assignments. Unauthorized groups come first.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context, authorized_operations
from odradek_broker.apis.slices import Sliced, Slices, run_in_slices
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

GROUP_ID_NOT_FOUND_FROM = 6

DescribedGroup = DescribeGroupsResponse.DescribedGroup


def handle(ctx: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse | Sliced:
    return run_in_slices(_respond(ctx, request))


def _respond(ctx: Context, request: DescribeGroupsRequest) -> Generator[int, None, DescribeGroupsResponse]:
    refused: list[DescribedGroup] = []
    described: list[DescribedGroup] = []
    for group_id in request.groups:
        if ctx.may_group(Operation.DESCRIBE, group_id):
            group = _describe(ctx, request, group_id)
            described.append(group)
            yield 1 + len(group.members)
        else:
            refused.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            yield 1
    return DescribeGroupsResponse(groups=refused + described)


def error_response(ctx: Context, request: DescribeGroupsRequest, error: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, error_code=error) for name in request.groups])


def _describe(ctx: Context, request: DescribeGroupsRequest, group_id: str) -> DescribedGroup:
    group = ctx.broker.group_coordinator.describe_group(group_id)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and ctx.api_version < GROUP_ID_NOT_FOUND_FROM:
        group.error_code, group.error_message = ErrorCode.NONE, None
    if request.include_authorized_operations and not group.error_code:
        group.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
    return group


API = Api(
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    handle,
    error_response=error_response,
    slices=Slices("groups", "groups"),
)
