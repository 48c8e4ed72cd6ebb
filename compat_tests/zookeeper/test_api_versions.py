"""What a broker says that it speaks over ZooKeeper: what Apache Kafka 3.9 says there."""

from __future__ import annotations

import pytest
from odradek_peers import KAFKA_3_9, ApacheKafka, ZooKeeperServer

from compat_tests.oracle.peer import Closed, Peer
from compat_tests.zookeeper.members import Members

pytestmark = pytest.mark.peers

DIFFERENT = {
    7: ((0, 3), (1, 3), "v0 has a header of its own, of brokers before 0.9"),
    56: ((0, 3), (2, 3), "v0 and v1 are of brokers before 3.3, which name no topic ids; 3.9 sends v3"),
    58: ((0, 0), None, "Envelope: nobody forwards here, and Kafka's brokers over ZooKeeper do not either"),
}
"""API key to Kafka's versions, ours, and why."""


def test_the_same_apis_are_advertised_where_brokers_ask(ours: Members) -> None:
    odradek = Peer("odradek", ours.members[1].bootstrap_servers)
    with ZooKeeperServer() as server:
        broker = ApacheKafka(KAFKA_3_9, heap="256M", zookeeper=f"{server.connect_string}/kafka")
        try:
            broker.launch()
            broker.wait()
            kafka = Peer("kafka", broker.bootstrap_servers)
            said = {peer.name: peer.ask("ApiVersions", 3, NAMED) for peer in (kafka, odradek)}
        finally:
            broker.close()
    theirs, own = (_by_key(said[name]) for name in ("kafka", "odradek"))
    found = {key: (theirs.get(key), own.get(key)) for key in {*theirs, *own} if theirs.get(key) != own.get(key)}
    assert found == {key: (kafkas, odradeks) for key, (kafkas, odradeks, _) in DIFFERENT.items()}
    for name in ("supported_features", "finalized_features", "finalized_features_epoch"):
        assert said["odradek"].get(name) == said["kafka"].get(name), name


@pytest.mark.parametrize("api", ["DescribeQuorum", "DescribeTopicPartitions", "UnregisterBroker"])
def test_what_needs_a_quorum_of_controllers_is_not_spoken(ours: Members, api: str) -> None:
    peer = Peer("odradek", ours.members[1].bootstrap_servers)
    with pytest.raises(Closed):
        peer.ask_bytes(api, 0, bytes(16))


NAMED = {"client_software_name": "odradek", "client_software_version": "1"}


def _by_key(answer: dict[str, object]) -> dict[int, tuple[int, int]]:
    found = answer["api_keys"]
    assert isinstance(found, list)
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in found}
