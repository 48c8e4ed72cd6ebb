"""Transaction markers that a test sends to a leader itself, and an authorizer that allows few operations."""

from __future__ import annotations

from typing import Any

from odradek_broker.security.authorizer import AllowAll, Operation
from odradek_controller.principal import Principal
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
PRODUCER = 7


def marker(
    *indexes: int,
    producer: int = PRODUCER,
    epoch: int = 0,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    topic: str = "t",
) -> Marker:
    return Marker(
        producer, epoch, commit, [Topic(topic, list(indexes or (0,)))], coordinator_epoch, transaction_version
    )


async def write(client: Any, *markers: Marker, version: int = 2) -> dict[int, dict[tuple[str, int], int]]:
    """Errors by producer and partition."""
    answer = await client.ask(WriteTxnMarkersRequest(list(markers)), version)
    rows = [
        (row.producer_id, {(t.name, p.partition_index): p.error_code for t in row.topics for p in t.partitions})
        for row in answer.markers
    ]
    assert len(dict(rows)) == len(rows), "a producer has one row"
    return dict(rows)


async def outcome(client: Any, wanted: Marker) -> int:
    """The error of one marker for one partition."""
    ((found,),) = [row.values() for row in (await write(client, wanted)).values()]
    return found


class Only(AllowAll):
    """An authorizer that allows some operations."""

    allows_everything = False

    def __init__(self, *allowed: Operation) -> None:
        self._allowed = allowed

    def allows(self, principal: Principal, address: str, operation: int, resource: int, name: str) -> bool:
        return operation in self._allowed
