"""ListPartitionReassignments (key 46): the reassignments in progress (KIP-455).

Versions: only v0.
Behaviour: authorizes, then submits the request to the controller.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(ctx: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    if not ctx.may_cluster(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    response: ListPartitionReassignmentsResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


API = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, handle)
