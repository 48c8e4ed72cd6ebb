"""LeaderAndIsr (key 4): the controller of a ZooKeeper cluster assigns leaders and followers.

Versions: v1 marks new partitions, v2 has broker epochs and groups by topic, v3 has reassignments (KIP-455), v4 is
flexible, v5 has topic ids, v6 the recovery state of leaders, v7 marks KRaft controllers (KIP-866).
Behaviour: the broker becomes leader or follower of each partition before it responds. Only brokers in a ZooKeeper
cluster serve it, on the listener between brokers.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

FIRST_VERSION_BY_TOPIC = 5


async def handle(ctx: Context, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: LeaderAndIsrResponse = await ctx.broker.control_requests.handle(request)
    if ctx.api_version >= FIRST_VERSION_BY_TOPIC:
        response.partition_errors = []
    else:
        response.topics = []
    return response


API = Api(LeaderAndIsrRequest, LeaderAndIsrResponse, handle)
