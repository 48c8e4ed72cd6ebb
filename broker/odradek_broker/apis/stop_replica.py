"""StopReplica (key 5): the controller of a ZooKeeper cluster removes replicas from this broker.

Versions: v1 has broker epochs and groups by topic, v2 is flexible, v3 has leader epochs and deletes by partition, v4
marks KRaft controllers (KIP-866).
Behaviour: the broker stops serving and fetching the replicas, and deletes those that the request marks. Only brokers in
a ZooKeeper cluster serve it, on the listener between brokers.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(ctx: Context, request: StopReplicaRequest) -> StopReplicaResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: StopReplicaResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(StopReplicaRequest, StopReplicaResponse, handle)
