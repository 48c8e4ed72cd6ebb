"""ListGroups (key 16): the groups that this broker coordinates.

Versions: v4 filters by state (KIP-518), v5 by type (KIP-848).
Behaviour: the response also has groups of types that this broker does not serve. A response with many groups is made in
slices, each group with its state at that time.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, run_in_slices
from odradek_broker.groups.core.group_listing import GroupFilter
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse | Sliced:
    groups = ctx.broker.group_coordinator.list_groups()
    if isinstance(groups, ErrorCode):
        return ListGroupsResponse(error_code=groups)
    return run_in_slices(_respond(ctx, request, groups))


def _respond(
    ctx: Context, request: ListGroupsRequest, groups: Iterator[ListGroupsResponse.ListedGroup]
) -> Generator[int, None, ListGroupsResponse]:
    group_filter = GroupFilter.of(request)
    # A client with permission to describe the cluster sees every group, as in Kafka.
    sees_all = ctx.may_cluster(Operation.DESCRIBE)
    response = ListGroupsResponse()
    for group in groups:
        if group_filter.passes(group) and (sees_all or ctx.may_group(Operation.DESCRIBE, group.group_id)):
            response.groups.append(group)
        yield 1
    return response


API = Api(ListGroupsRequest, ListGroupsResponse, handle)
