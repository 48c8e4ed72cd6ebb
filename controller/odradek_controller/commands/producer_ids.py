"""AllocateProducerIds: the controller gives a broker a block of 1,000 producer ids."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord

from ..image import ClusterImage
from .context import CommandContext

BLOCK = 1000
_LAST = (1 << 63) - 1


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest, context: CommandContext
) -> tuple[list[Message], AllocateProducerIdsResponse]:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return [], AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return [], AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    first = image.next_producer_id
    if first > _LAST - BLOCK:
        return [], AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + BLOCK)
    return [record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK)
