"""UpdateMetadata (key 6): the controller of a ZooKeeper cluster sends the metadata for clients.

Versions: v1 has endpoints, v2 racks, v3 listener names, v4 offline replicas, v5 broker epochs and groups by topic, v6
is flexible, v7 has topic ids, v8 marks KRaft controllers (KIP-866).
Behaviour: the broker adds the partitions and brokers of the request to its metadata. Only brokers in a ZooKeeper
cluster serve it, on the listener between brokers.
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(ctx: Context, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    if not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response: UpdateMetadataResponse = await ctx.broker.control_requests.handle(request)
    return response


API = Api(UpdateMetadataRequest, UpdateMetadataResponse, handle)
