"""Fetch requests of tests, and the values of the records in their responses."""

from __future__ import annotations

from typing import Any

from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.records.conversion import read_any
from odradek_wire.uuid import ZERO_UUID, Uuid


def fetch_request(
    topic: str,
    offset: int = 0,
    version: int = 11,
    topic_id: Uuid = ZERO_UUID,
    partition: int = 0,
    **fields: Any,
) -> FetchRequest:
    """A request for one partition; `partition_max_bytes` and `current_leader_epoch` go to it, the others to the
    whole."""
    epoch = fields.pop("current_leader_epoch", -1)
    max_bytes = fields.pop("partition_max_bytes", 1_000_000)
    request = FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        topics=[
            FetchRequest.FetchTopic(
                topic if version < 13 else "",
                topic_id if version >= 13 else ZERO_UUID,
                [FetchRequest.FetchPartition(partition, epoch, offset, partition_max_bytes=max_bytes)],
            )
        ],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


async def fetch(client: Any, topic: str, offset: int = 0, version: int = 11, **fields: Any) -> Any:
    """Return the partition of the response to a Fetch of that partition alone."""
    response = await client.ask(fetch_request(topic, offset, version, **fields), version)
    return response.responses[0].partitions[0]


def values(records: bytes | memoryview) -> list[bytes | None]:
    return [None if record.value is None else bytes(record.value) for record in read_any(records, allow_partial=True)]
