"""AlterPartitionReassignments (key 45): the controller moves replicas to other brokers (KIP-455).

Versions: v1 has `allow_replication_factor_change` (KIP-860).
Behaviour: authorizes, then submits the request to the controller. With a `timeout_ms` of 0 or less, a request that
names a topic gets REQUEST_TIMED_OUT (QuorumController).
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


async def handle(ctx: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.refuses_timeout(request.timeout_ms) and request.topics:
        return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    response: AlterPartitionReassignmentsResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


def error_response(
    ctx: Context, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                topic.name,
                [
                    AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                        partition.partition_index, error, None
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


API = Api(
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, handle, error_response=error_response
)
