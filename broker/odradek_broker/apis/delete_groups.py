"""DeleteGroups (key 42): an admin client deletes empty groups with their offsets (KIP-229).

Versions: v2 is flexible.
Behaviour: the response comes when the tombstones are replicated.
Differences from Kafka: none.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

DeletableGroupResult = DeleteGroupsResponse.DeletableGroupResult


def handle(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    refused = [name for name in names if not ctx.may_group(Operation.DELETE, name)]
    refusals = [
        DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in refused
    ]
    # Begin all deletions before waiting, so that a disconnect of the client does not cancel some of them.
    deletions = [ctx.broker.group_coordinator.delete_group(name) for name in names if name not in refused]
    if all(deletion.done for deletion in deletions):
        return DeleteGroupsResponse(results=[deletion.result() for deletion in deletions] + refusals)
    return _await_deletions(deletions, refusals)


async def _await_deletions(
    deletions: list[Deferred[DeletableGroupResult]], refusals: list[DeletableGroupResult]
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await deletion for deletion in deletions] + refusals)


def error_response(ctx: Context, request: DeleteGroupsRequest, error: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=error) for name in request.groups_names]
    )


API = Api(
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    handle,
    error_response=error_response,
    slices=Slices("groups_names", "results", elements=100),
)
