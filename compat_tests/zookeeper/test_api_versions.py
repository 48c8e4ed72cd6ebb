"""The APIs and settings that a broker over ZooKeeper lists are those of Apache Kafka 3.9 over ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from odradek_peers import KAFKA_3_9, ApacheKafka, ZooKeeperServer

from compat_tests.oracle.peer import Closed, Peer
from compat_tests.oracle.settings import CLIENT_METRICS, GROUP, assert_same_broker_settings, describe_configs
from compat_tests.zookeeper.cluster import ZooKeeperCluster

pytestmark = pytest.mark.peers

DIFFERENT = {
    7: ((0, 3), (1, 3), "v0 has a header of its own, of brokers before 0.9"),
    56: ((0, 3), (2, 3), "v0 and v1 are of brokers before 3.3, which name no topic ids; 3.9 sends v3"),
    58: ((0, 0), None, "Envelope: brokers over ZooKeeper, also Kafka's, forward no requests"),
}
"""By API key: Kafka's versions, ours, and the reason for the difference."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Peer]:
    with ZooKeeperServer() as server:
        broker = ApacheKafka(KAFKA_3_9, heap="256M", zookeeper=f"{server.connect_string}/kafka")
        try:
            broker.start()
            peer = Peer("kafka", broker.bootstrap_servers)
            yield peer
            peer.close()
        finally:
            broker.close()


@pytest.fixture
def odradek(cluster: ZooKeeperCluster) -> Iterator[Peer]:
    peer = Peer("odradek", cluster.brokers[1].bootstrap_servers)
    yield peer
    peer.close()


def test_a_broker_over_zookeeper_lists_broker_settings_only(kafka: Peer, odradek: Peer) -> None:
    assert_same_broker_settings(kafka, odradek)
    for kind in (GROUP, CLIENT_METRICS):
        assert describe_configs(odradek, kind, "any") == describe_configs(kafka, kind, "any")
        change = {"resource_type": kind, "resource_name": "any", "configs": []}
        asked = {"resources": [change], "validate_only": False}
        assert odradek.ask("IncrementalAlterConfigs", 1, asked) == kafka.ask("IncrementalAlterConfigs", 1, asked)


def test_brokers_over_zookeeper_advertise_kafkas_apis(kafka: Peer, odradek: Peer) -> None:
    said = {peer.name: peer.ask("ApiVersions", 3, NAMED) for peer in (kafka, odradek)}
    theirs, own = (_by_key(said[name]) for name in ("kafka", "odradek"))
    found = {key: (theirs.get(key), own.get(key)) for key in {*theirs, *own} if theirs.get(key) != own.get(key)}
    assert found == {key: (kafkas, odradeks) for key, (kafkas, odradeks, _) in DIFFERENT.items()}
    for name in ("supported_features", "finalized_features", "finalized_features_epoch"):
        assert said["odradek"].get(name) == said["kafka"].get(name), name


@pytest.mark.parametrize("api", ["DescribeQuorum", "DescribeTopicPartitions", "UnregisterBroker"])
def test_apis_that_need_a_kraft_quorum_are_not_advertised(cluster: ZooKeeperCluster, api: str) -> None:
    peer = Peer("odradek", cluster.brokers[1].bootstrap_servers)
    with pytest.raises(Closed):
        peer.ask_bytes(api, 0, bytes(16))


NAMED = {"client_software_name": "odradek", "client_software_version": "1"}


def _by_key(response: dict[str, object]) -> dict[int, tuple[int, int]]:
    found = response["api_keys"]
    assert isinstance(found, list)
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in found}
