"""DescribeCluster (key 60): the brokers, and the id of the cluster (KIP-700).

Versions: v1 has the type of endpoints (KIP-919), v2 fenced brokers (KIP-1073).
Behaviour: MISMATCHED_ENDPOINT_TYPE for the endpoints of controllers, which a broker's listener does not have.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context, authorized_operations
from odradek_broker.metadata.view import AUTHORIZED_OPERATIONS_OMITTED, brokers_on, controller_id_for_clients
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


def handle(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    image = ctx.broker.image
    response = DescribeClusterResponse(cluster_id=image.cluster_id, endpoint_type=request.endpoint_type)
    if request.include_cluster_authorized_operations:
        allowed = ctx.may_cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = authorized_operations(ctx, ResourceType.CLUSTER) if allowed else 0
    if request.endpoint_type != BROKERS:
        mismatch = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if mismatch else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER"
            if mismatch
            else f"Unsupported endpoint type {request.endpoint_type}",
            cluster_authorized_operations=AUTHORIZED_OPERATIONS_OMITTED,
        )
    response.controller_id = controller_id_for_clients(image)
    response.brokers = [
        DescribeClusterResponse.DescribeClusterBroker(broker.id, broker.host, broker.port, broker.rack, broker.fenced)
        for broker in brokers_on(image, ctx.listener, fenced=request.include_fenced_brokers)
    ]
    return response


API = Api(DescribeClusterRequest, DescribeClusterResponse, handle)
