"""DescribeClientQuotas (key 48), versions 0-1: none are set, since none can be."""

from __future__ import annotations

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

ENTITY_TYPES = ("user", "client-id", "ip")


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    for component in request.components:
        if component.entity_type not in ENTITY_TYPES:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=f"Unsupported entity type {component.entity_type}",
                entries=None,
            )
    return DescribeClientQuotasResponse(error_message=None, entries=[])


API = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, handle, notes="Quotas cannot be set.")
