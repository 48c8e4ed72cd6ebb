"""The committed offsets of a consumer group, through a `Client`."""

from __future__ import annotations

from odradek.client.client import Client
from odradek.exceptions import KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

# From these versions of OffsetFetch on, a request has several groups (KIP-709), and topic ids, not names (KIP-848).
_MULTI_GROUP_VERSION = 8
_TOPIC_ID_VERSION = 10
_NOTHING_COMMITTED = -1


def committed_offsets(client: Client, group_id: str) -> dict[str, dict[int, int]]:
    """Return the committed offsets of a group: topic to partition to offset. Raises ClientError."""
    version = client.version(OffsetFetchRequest.API_KEY)
    if version < _MULTI_GROUP_VERSION:
        response = client.call_group(
            group_id, OffsetFetchRequest(group_id, None), OffsetFetchResponse, lambda response: response.error_code
        )
        _check(response.error_code, group_id)
        return {
            topic.name: {
                partition.partition_index: partition.committed_offset
                for partition in topic.partitions
                if partition.committed_offset != _NOTHING_COMMITTED
            }
            for topic in response.topics
        }
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id, topics=None)])
    (group,) = client.call_group(
        group_id, request, OffsetFetchResponse, lambda response: response.groups[0].error_code
    ).groups
    _check(group.error_code, group_id)
    names = (
        {topic.topic_id: topic.name or "" for topic in client.metadata().topics} if version >= _TOPIC_ID_VERSION else {}
    )
    return {
        names.get(topic.topic_id, topic.name) if names else topic.name: {
            partition.partition_index: partition.committed_offset
            for partition in topic.partitions
            if partition.committed_offset != _NOTHING_COMMITTED
        }
        for topic in group.topics
    }


def _check(error_code: int, group_id: str) -> None:
    if error_code != ErrorCode.NONE:
        raise KafkaError(error_code, f"group {group_id!r}")
