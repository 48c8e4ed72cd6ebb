"""What a cluster looks like at the moment: its brokers and where each partition is, through a `Client`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.exceptions import KafkaError
from odradek_wire.errors import ErrorCode

NO_LEADER = -1


@dataclass(frozen=True)
class Broker:
    """One that runs."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, order=True)
class Partition:
    """Where its replicas are. `offline`: those on brokers that do not run, or on disks that failed."""

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
    """Brokers by id; partitions in the order of topic and number."""

    brokers: Mapping[int, Broker]
    partitions: Sequence[Partition]

    def of(self, topic: str, index: int | None = None) -> list[Partition]:
        """The partitions of a topic, or one of them; `KafkaError` if there is none."""
        found = [each for each in self.partitions if each.topic == topic and index in (None, each.index)]
        if not found:
            about = f"topic {topic!r}" if index is None else f"partition {topic}-{index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about)
        return found


def cluster_state(client: Client, topics: Collection[str] | None = None, *, internal: bool = True) -> ClusterState:
    """All topics, or those named; `KafkaError` if one of them does not exist. Kafka's own only if `internal`."""
    answer = client.metadata(None if topics is None else sorted(set(topics)))
    for topic in answer.topics:
        if topic.error_code != ErrorCode.NONE:
            raise KafkaError(topic.error_code, f"topic {topic.name!r}")
    return ClusterState(
        {each.node_id: Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers},
        sorted(
            Partition(
                topic.name or "",
                each.partition_index,
                each.leader_id,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for topic in answer.topics
            if internal or not topic.is_internal
            for each in topic.partitions
        ),
    )
