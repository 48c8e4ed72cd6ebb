"""AlterPartition (key 56): the leader of a partition proposes an ISR to the controller (KIP-497).

Versions: v2 has topic ids, v3 the broker epochs of the ISR (KIP-903).
Behaviour: only the controller of a ZooKeeper cluster serves it, on the listener between brokers.
Differences from Kafka: v0 and v1 are not served.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(ctx: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: AlterPartitionResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(AlterPartitionRequest, AlterPartitionResponse, handle)
