"""Brokers of Odradek replace Kafka's and the reverse while clients work: one by one in the same directory, one by one
as new brokers, and by moving leaders back and forth. No record is lost, duplicated or out of order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.oracle.peer import Peer
from compat_tests.zookeeper.cluster import WAIT_S, ZooKeeperCluster
from compat_tests.zookeeper.load import Load

pytestmark = pytest.mark.peers

_BROKERS = (1, 2, 3)
_ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_PREFERRED = 0
_SESSION_MS = 15_000
_INTERNAL = "__consumer_offsets"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    with ZooKeeperServer() as server:
        cluster = ZooKeeperCluster(server, "/kafka", tmp_path, session_ms=_SESSION_MS)
        yield cluster
        cluster.close()


def test_every_broker_is_replaced_in_its_directory_and_back(cluster: ZooKeeperCluster) -> None:
    cluster.kafka(*_BROKERS)
    cluster.create("t", _ASSIGNMENT)
    with Load(cluster.bootstrap_servers, "t", len(_ASSIGNMENT)) as load:
        load.until_more()
        for broker in (*_BROKERS, *_BROKERS):
            cluster.replace(broker)
            cluster.until_in_sync("t", _INTERNAL)
            _elect_preferred(cluster, [1, 2, 3])
            load.until_more()
            if broker == 1:
                for leader in (2, 1, 2, 1):
                    _lead(cluster, leader)
                    load.until_more(200)
    load.finish(cluster.bootstrap_servers)
    cluster.assert_replicas_agree("t", _INTERNAL)


def test_every_broker_is_replaced_by_a_new_one_and_back(cluster: ZooKeeperCluster) -> None:
    cluster.kafka(*_BROKERS)
    cluster.create("t", _ASSIGNMENT)
    start: Callable[[int], None]
    with Load(cluster.bootstrap_servers, "t", len(_ASSIGNMENT)) as load:
        load.until_more()
        for start, first in ((cluster.odradek, 11), (cluster.kafka, 21)):
            for broker, old in enumerate(tuple(cluster.brokers), start=first):
                start(broker)
                cluster.until(lambda: len(cluster.admin().list_topics(timeout=WAIT_S).brokers) == 4)
                cluster.run("reassign", "--drain", str(old), "--wait")
                load.until_more()
                cluster.remove(old)
                cluster.until_in_sync("t", _INTERNAL)
                load.until_more()
    load.finish(cluster.bootstrap_servers)
    cluster.assert_replicas_agree("t", _INTERNAL)


def _elect_preferred(cluster: ZooKeeperCluster, wanted: list[int]) -> None:
    """Elect the preferred leaders, repeatedly, because the controller may not know yet that a broker runs."""
    responses: list[object] = []

    def led() -> bool:
        controller = cluster.brokers.get(cluster.controller())
        if controller is not None:
            body = {"election_type": _PREFERRED, "topic_partitions": None, "timeout_ms": 5000}
            responses.append(Peer("the controller", controller.bootstrap_servers).ask("ElectLeaders", 2, body))
        return cluster.leaders("t") == wanted

    cluster.until(led, lambda: (cluster.leaders("t"), responses))


def _lead(cluster: ZooKeeperCluster, leader: int) -> None:
    """Make broker 1 or 2 the preferred leader of partition 0, and elect it."""
    replicas = [leader, 3 - leader, 3]
    plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": replicas}]}
    file = cluster.directory / "plan.json"
    file.write_text(json.dumps(plan))
    cluster.run("reassign", "--wait", "--file", str(file))
    _elect_preferred(cluster, [leader, 2, 3])
