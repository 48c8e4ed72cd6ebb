"""AlterPartitionReassignments (key 45), versions 0-1: replicas move to other brokers; the controller decides.

A `timeout_ms` of 0 or less fails a request that names topics with REQUEST_TIMED_OUT (QuorumController).
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
        return failed(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.expired(request.timeout_ms) and request.topics:
        return failed(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    response: AlterPartitionReassignmentsResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


def failed(
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


API = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, handle, failed=failed)
