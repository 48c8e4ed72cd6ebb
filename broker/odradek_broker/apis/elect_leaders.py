"""ElectLeaders (key 43): the controller elects the preferred replicas, or any live replica in an unclean election.

Versions: v1 has the type of election (KIP-460) and an error of the whole request, v2 is flexible.
Behaviour: authorizes, then submits the request to the controller. With a `timeout_ms` of 0 or less, every request but
one with an empty list of topics gets REQUEST_TIMED_OUT (QuorumController).
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


async def handle(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not ctx.may_cluster(Operation.ALTER):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.refuses_timeout(request.timeout_ms) and request.topic_partitions != []:
        return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    response: ElectLeadersResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    return response


def error_response(ctx: Context, request: ElectLeadersRequest, error: ErrorCode) -> ElectLeadersResponse:
    """Return a response with the error in every partition, and from version 1 also for the whole request."""
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


API = Api(ElectLeadersRequest, ElectLeadersResponse, handle, error_response=error_response)
