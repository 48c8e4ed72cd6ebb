"""The state of a cluster at one moment, through a `Client`: its running brokers and its partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.exceptions import KafkaError
from odradek_wire.errors import ErrorCode

NO_LEADER = -1


@dataclass(frozen=True)
class BrokerInfo:
    """A running broker."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, order=True)
class PartitionInfo:
    """A partition and its replicas; `offline` has those on brokers that are down or on failed log directories."""

    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True)
class ClusterState:
    """The running brokers by id, and the partitions sorted by topic and index."""

    brokers: Mapping[int, BrokerInfo]
    partitions: Sequence[PartitionInfo]

    def partitions_of(self, topic: str, index: int | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, or one of them. Raises KafkaError if there is none."""
        found = [each for each in self.partitions if each.topic == topic and index in (None, each.index)]
        if not found:
            subject = f"topic {topic!r}" if index is None else f"partition {topic}-{index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject)
        return found


def cluster_state(client: Client, topics: Collection[str] | None = None, *, internal: bool = True) -> ClusterState:
    """Return the state of all topics, or of `topics`; `internal` includes internal topics.

    Raises KafkaError if one of `topics` does not exist.
    """
    response = client.metadata(None if topics is None else sorted(set(topics)))
    for topic in response.topics:
        if topic.error_code != ErrorCode.NONE:
            raise KafkaError(topic.error_code, f"topic {topic.name!r}")
    return ClusterState(
        {each.node_id: BrokerInfo(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
        sorted(
            PartitionInfo(
                topic.name or "",
                each.partition_index,
                each.leader_id,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for topic in response.topics
            if internal or not topic.is_internal
            for each in topic.partitions
        ),
    )
