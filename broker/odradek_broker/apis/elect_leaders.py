"""ElectLeaders (key 43), versions 0-2: the preferred replicas lead again, or with version 1 an unclean election.

A `timeout_ms` of 0 or less fails a request that names topics, or all, with REQUEST_TIMED_OUT (QuorumController).
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


async def handle(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return failed(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.expired(request.timeout_ms) and request.topic_partitions != []:
        return failed(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    response: ElectLeadersResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


def failed(ctx: Context, request: ElectLeadersRequest, error: ErrorCode) -> ElectLeadersResponse:
    """Version 0 has no place for an error of the whole request."""
    return ElectLeadersResponse(
        error_code=error if ctx.api_version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic.topic,
                [ElectLeadersResponse.PartitionResult(index, error, None) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


API = Api(ElectLeadersRequest, ElectLeadersResponse, handle, failed=failed)
