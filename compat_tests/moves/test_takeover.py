"""All brokers of a cluster over ZooKeeper are killed under load, and brokers of the other kind start with their
directories: Odradek's with Kafka's, and Kafka's with Odradek's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.moves.site import Owner
from compat_tests.zookeeper.cluster import ZooKeeperCluster
from compat_tests.zookeeper.load import Load

pytestmark = pytest.mark.peers

_BROKERS = (1, 2, 3)
_ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_INTERNAL = "__consumer_offsets"
_SESSION_MS = 6_000
"""The new brokers wait for this; long enough that no session expires on a busy machine."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    with ZooKeeperServer() as server:
        cluster = ZooKeeperCluster(server, "/kafka", tmp_path, session_ms=_SESSION_MS)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.mark.parametrize("first", ["kafka", "odradek"])
def test_acknowledged_records_survive_a_takeover_from_killed_brokers(first: Owner, cluster: ZooKeeperCluster) -> None:
    if first == "kafka":
        cluster.kafka(*_BROKERS)
    else:
        for broker in _BROKERS:
            cluster.odradek(broker)
    cluster.create("t", _ASSIGNMENT)
    with Load(cluster.bootstrap_servers, "t", len(_ASSIGNMENT)) as load:
        load.until_more(2_000)
        cluster.kill()
        load.cut()
        cluster.take_over()
    cluster.until_in_sync("t", _INTERNAL)
    with load:
        load.until_more()
    load.finish(cluster.bootstrap_servers)
    cluster.assert_replicas_agree("t", _INTERNAL)
