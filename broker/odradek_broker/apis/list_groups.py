"""ListGroups (key 16): the groups that this broker coordinates.

Versions: v4 filters by state (KIP-518), v5 by type (KIP-848).
Behaviour: the response also has groups of types that this broker does not serve.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.groups.core.group_listing import filtered
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = ctx.broker.group_coordinator.list_groups()
    if isinstance(groups, ErrorCode):
        return ListGroupsResponse(error_code=groups)
    found = filtered(groups, request.states_filter, request.types_filter)
    # A client with permission to describe the cluster sees every group, as in Kafka.
    if not ctx.may_cluster(Operation.DESCRIBE):
        found = [group for group in found if ctx.may_group(Operation.DESCRIBE, group.group_id)]
    return ListGroupsResponse(groups=found)


API = Api(ListGroupsRequest, ListGroupsResponse, handle)
