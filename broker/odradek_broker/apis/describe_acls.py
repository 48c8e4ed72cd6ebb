"""DescribeAcls (key 29): list access control entries.

Versions: v1 adds the pattern type (KIP-290); v2 is flexible; v3 adds the resource type User (KIP-373).
Behaviour: SECURITY_DISABLED, as a Kafka broker without an authorizer.
Differences from Kafka: no authorizer can be configured.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not ctx.may_cluster(Operation.DESCRIBE):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API = Api(DescribeAclsRequest, DescribeAclsResponse, handle)
