"""Arguments that name topics, partitions and brokers (TOPIC, TOPIC:PARTITION and 1,2,3) or count them."""

from __future__ import annotations

from collections.abc import Iterable

import click

from odradek.client.cluster_state import ClusterState, PartitionInfo

_INT16_MAX = (1 << 15) - 1
_INT32_MAX = (1 << 31) - 1

PARTITION_COUNT = click.IntRange(1, _INT32_MAX)
REPLICA_COUNT = click.IntRange(1, _INT16_MAX)


def topic_partition(text: str) -> tuple[str, int | None]:
    """Parse TOPIC or TOPIC:PARTITION; no topic's name has a colon. The partition is None without one."""
    topic, separator, index = text.partition(":")
    if not topic or (separator and not index.isdecimal()):
        raise click.BadParameter(f"{text!r} is not of the form TOPIC or TOPIC:PARTITION")
    return topic, int(index) if separator else None


def broker_ids(text: str) -> list[int]:
    """Parse `1,2,3`: different broker ids."""
    ids = text.split(",")
    if not all(each.isdecimal() for each in ids):
        raise click.BadParameter(f"{text!r} is not of the form 1,2,3")
    if len(set(ids)) < len(ids):
        raise click.BadParameter(f"{text!r} names a broker twice")
    if any(int(each) > _INT32_MAX for each in ids):
        raise click.BadParameter(f"{text!r} has an id above {_INT32_MAX}")
    return [int(each) for each in ids]


def partitions_of(state: ClusterState, arguments: Iterable[tuple[str, int | None]]) -> list[PartitionInfo]:
    """Return the partitions that the arguments name, each once. Raises KafkaError for one that does not exist."""
    found = {partition: None for topic, index in arguments for partition in state.partitions_of(topic, index)}
    return list(found)
