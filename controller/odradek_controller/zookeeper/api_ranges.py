"""The APIs that a Kafka 3.9 broker of ZooKeeper mode advertises to clients."""

from __future__ import annotations

from ..levels import ApiRanges, Emulation

KRAFT_ONLY_APIS = frozenset((55, 64, 74, 75, 80, 81))
"""APIs that Kafka 3.9 serves only in KRaft mode: DescribeQuorum, UnregisterBroker, ListConfigResources,
DescribeTopicPartitions, AddRaftVoter, RemoveRaftVoter."""


def zookeeper_apis() -> ApiRanges:
    """Return the versions of each API, without those that only brokers send to each other."""
    ranges = Emulation.KAFKA_3_9.apis
    assert ranges is not None
    return {key: versions for key, versions in ranges.items() if key not in KRAFT_ONLY_APIS}
