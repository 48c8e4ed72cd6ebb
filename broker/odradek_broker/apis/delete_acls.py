"""DeleteAcls (key 31): remove the access control entries that match filters.

Versions: v1 adds the pattern type (KIP-290); v2 is flexible; v3 adds the resource type User (KIP-373).
Behaviour: SECURITY_DISABLED for each filter, as a Kafka broker without an authorizer.
Differences from Kafka: no authorizer can be configured.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return error_response(ctx, request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def error_response(
    ctx: Context, request: DeleteAclsRequest, error: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    row = DeleteAclsResponse.DeleteAclsFilterResult
    return DeleteAclsResponse(filter_results=[row(error, message) for _ in request.filters])


API = Api(DeleteAclsRequest, DeleteAclsResponse, handle, error_response=error_response)
