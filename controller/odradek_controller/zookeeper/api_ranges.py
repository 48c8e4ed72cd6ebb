"""The APIs that a Kafka 3.9 broker of ZooKeeper mode advertises to clients."""

from __future__ import annotations

from odradek_wire.apis import ApiKey

from ..levels import ApiRanges, Emulation

KRAFT_ONLY_APIS = frozenset(
    {
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs that Kafka 3.9 serves only in KRaft mode."""


def zookeeper_apis() -> ApiRanges:
    """Return the versions of each API that Kafka 3.9 serves in ZooKeeper mode."""
    ranges = Emulation.KAFKA_3_9.apis
    assert ranges is not None
    return {key: versions for key, versions in ranges.items() if key not in KRAFT_ONLY_APIS}
