"""AddOffsetsToTxn (key 25): add the offsets of a group to the open transaction (KIP-98).

Versions: v3 is flexible; clients know TRANSACTION_ABORTABLE from v4 on (KIP-890). Producers of transaction version 2 do
not send it, because TxnOffsetCommit adds the partition.
Behaviour: the coordinator adds the partition of `__consumer_offsets` that stores the group's offsets.
Differences from Kafka: the response waits until the previous transaction is complete, as in AddPartitionsToTxn.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.view import CONSUMER_OFFSETS
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(
    ctx: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    if not ctx.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = ctx.broker.transaction_coordinator.add_offsets(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        (CONSUMER_OFFSETS, ctx.broker.group_coordinator.partition_of(request.group_id)),
        ctx.api_version,
    )
    if not isinstance(error, Deferred):
        return AddOffsetsToTxnResponse(error_code=error)
    return error.map(lambda error_code: AddOffsetsToTxnResponse(error_code=error_code))


API = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, handle)
