"""DeleteGroups (key 42): empty groups and their offsets go (KIP-229)."""

from __future__ import annotations

from collections.abc import Awaitable

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    refused = [name for name in names if not ctx.may_group(Operation.DELETE, name)]
    refusals = [Result(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in refused]
    # All are begun at once: a client that goes away in between does not leave half of them.
    deleting = [ctx.broker.groups.delete_group(name) for name in names if name not in refused]
    if all(answer.done for answer in deleting):
        return DeleteGroupsResponse(results=[answer.result() for answer in deleting] + refusals)
    return _when_deleted(deleting, refusals)


async def _when_deleted(deleting: list[Deferred[Result]], refusals: list[Result]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await answer for answer in deleting] + refusals)


def failed(ctx: Context, request: DeleteGroupsRequest, error: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[Result(group_id=name, error_code=error) for name in request.groups_names])


API = Api(
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    handle,
    failed=failed,
    slices=Slices("groups_names", "results", elements=100),
)
