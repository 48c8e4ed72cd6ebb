"""Acknowledged records survive any change of controller and leaders: Odradek processes over a real ZooKeeper, also with
Apache Kafka 3.9 in the same cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from odradek_peers import ZooKeeperServer

from compat_tests.zookeeper.cluster import WAIT_S, OdradekBroker, ZooKeeperCluster
from odradek.client.client import Client

pytestmark = pytest.mark.peers

_chroots = itertools.count()
_numbers = itertools.count()
KAFKA = 3
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION = 4, 5, 6, 56


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def cluster(server: ZooKeeperServer, tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    cluster = ZooKeeperCluster(server, f"/cluster-{next(_chroots)}", tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def mixed(cluster: ZooKeeperCluster) -> ZooKeeperCluster:
    """Brokers 1 and 2 are ours, 3 is Kafka's."""
    cluster.odradek(1)
    cluster.odradek(2)
    cluster.kafka(KAFKA)
    cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
    return cluster


def new_values(count: int = 500) -> list[bytes]:
    """Return new values."""
    return [b"%d" % next(_numbers) for _ in range(count)]


def test_three_brokers_continue_when_the_controller_is_killed(cluster: ZooKeeperCluster) -> None:
    for broker in (1, 2, 3):
        cluster.odradek(broker)
    cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
    cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.produce("t", new_values())
    assert cluster.read_as_group("t", "g", 500) == 500
    victim = cluster.controller()
    cluster.brokers[victim].kill()
    cluster.produce("t", new_values())
    cluster.until(lambda: cluster.controller() not in (victim, -1))
    cluster.brokers[victim].start()
    cluster.until(lambda: cluster.in_sync("t") == [{1, 2, 3}] * 3)
    cluster.produce("t", new_values())
    assert cluster.read_as_group("t", "g", 1000) == 1000
    cluster.assert_all_stored_once("t")


def test_a_broker_paused_beyond_its_session_timeout_returns(cluster: ZooKeeperCluster) -> None:
    for broker in (1, 2, 3):
        cluster.odradek(broker)
    cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
    cluster.create("t", [[1, 2, 3]])
    paused = cluster.brokers[1]
    assert isinstance(paused, OdradekBroker)
    paused.pause()
    cluster.produce("t", new_values())
    paused.resume()
    cluster.until(lambda: cluster.in_sync("t") == [{1, 2, 3}])
    cluster.produce("t", new_values())
    cluster.assert_all_stored_once("t")


@pytest.mark.parametrize("controller", [1, KAFKA])
def test_brokers_of_kafka_and_odradek_form_one_cluster(mixed: ZooKeeperCluster, controller: int) -> None:
    mixed.make_controller(controller)
    mixed.create("t", [[1, KAFKA, 2], [KAFKA, 2, 1], [2, 1, KAFKA]])
    mixed.until(lambda: mixed.leaders("t") == [1, KAFKA, 2])
    mixed.produce("t", new_values())
    assert mixed.read_as_group("t", "g", 500) == 500
    mixed.brokers[2].stop()
    mixed.until(lambda: mixed.leaders("t")[2] == 1)
    mixed.produce("t", new_values())
    mixed.brokers[2].start()
    mixed.until(lambda: mixed.in_sync("t") == [{1, 2, KAFKA}] * 3)
    mixed.produce("t", new_values())
    mixed.assert_all_stored_once("t")
    mixed.delete("t")


def test_kafkas_broker_is_killed_as_controller_and_leader(mixed: ZooKeeperCluster) -> None:
    mixed.make_controller(KAFKA)
    mixed.create("t", [[KAFKA, 1, 2], [KAFKA, 2, 1]])
    mixed.produce("t", new_values())
    mixed.brokers[KAFKA].kill()
    mixed.produce("t", new_values())
    assert mixed.controller() in (1, 2)
    mixed.brokers[KAFKA].start()
    mixed.until(lambda: mixed.in_sync("t") == [{1, 2, KAFKA}] * 2)
    mixed.produce("t", new_values())
    mixed.brokers[KAFKA].stop()
    mixed.produce("t", new_values())
    mixed.assert_all_stored_once("t")


@pytest.mark.parametrize("controller", [1, KAFKA])
def test_controllers_and_brokers_use_the_control_plane_listener(cluster: ZooKeeperCluster, controller: int) -> None:
    taps = {}
    for broker in (1, 2, KAFKA):
        taps[broker], settings = cluster.control_plane(broker)
        start = cluster.kafka if broker == KAFKA else cluster.odradek
        start(broker, **settings)
    cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
    cluster.make_controller(controller)
    cluster.create("t", [[1, KAFKA, 2], [KAFKA, 2, 1], [2, 1, KAFKA]])
    cluster.produce("t", new_values())
    for tap in taps.values():
        tap.api_keys.clear()
    # The leader that is not the controller is of the other kind, and sends AlterPartition when broker 2 is back.
    cluster.brokers[2].stop()
    cluster.brokers[2].start()
    cluster.until(lambda: cluster.in_sync("t") == [{1, 2, KAFKA}] * 3)
    cluster.produce("t", new_values())
    cluster.assert_all_stored_once("t")
    cluster.delete("t")
    other_taps = [tap for broker, tap in taps.items() if broker != controller]
    cluster.until(lambda: all({LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA} <= tap.api_keys for tap in other_taps))
    assert ALTER_PARTITION in taps[controller].api_keys


@pytest.mark.parametrize("controller", [1, KAFKA])
@pytest.mark.parametrize("victim", [2, KAFKA])
def test_other_brokers_lead_after_a_log_directory_failure(
    cluster: ZooKeeperCluster, tmp_path: Path, controller: int, victim: int
) -> None:
    """With each controller, on each kind of broker: a log directory is replaced by a file."""
    directories = [tmp_path / f"{victim}-{name}" for name in "ab"]
    two = ",".join(map(str, directories))
    # Long sessions, so that the controller stays the same on a busy machine.
    patient = {"zookeeper.session.timeout.ms": "30000"}
    cluster.odradek(1, **patient)
    cluster.odradek(2, **patient, **({"log.dirs": two} if victim == 2 else {}))
    cluster.kafka(KAFKA, **patient, **({"log.dirs": two} if victim == KAFKA else {}))
    cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
    # FindCoordinator creates an internal topic; Kafka's brokers create it without the controller. Our controller
    # resigns when it finds such a conflicting write. Do this before the test needs a certain controller.
    with Client(cluster.bootstrap_servers, timeout_s=WAIT_S) as client:
        client.coordinator("reader")
    cluster.make_controller(controller)
    others = [broker for broker in (1, 2, KAFKA) if broker != victim]
    cluster.create("t", [[victim, *others]] * 4, segment_bytes="1100000")
    cluster.until(lambda: cluster.leaders("t") == [victim] * 4)
    cluster.produce("t", new_values())
    failing = {int(path.name[2:]) for path in directories[0].glob("t-?")}
    assert failing
    assert failing != {0, 1, 2, 3}
    directories[0].rename(tmp_path / "gone")
    directories[0].touch()
    # The active segment of each partition fills up: the next one needs the directory.
    cluster.produce("t", [value + b"x" * 1000 for value in new_values(12_000)])
    expected = [others[0] if index in failing else victim for index in range(4)]
    cluster.until(lambda: cluster.leaders("t") == expected, expected)
    cluster.until(lambda: cluster.in_sync("t")[min(failing)] == set(others))
    cluster.produce("t", new_values())
    cluster.assert_all_stored_once("t")
    assert cluster.controller() == controller, cluster.brokers[controller].log_tail()


def children(cluster: ZooKeeperCluster, path: str) -> list[str]:
    kazoo = KazooClient(cluster.zookeeper)
    kazoo.start()
    try:
        return sorted(kazoo.get_children(path))
    finally:
        kazoo.stop()
        kazoo.close()


def test_kafkas_broker_deletes_a_topic_deleted_while_it_was_down(mixed: ZooKeeperCluster, tmp_path: Path) -> None:
    mixed.make_controller(1)
    mixed.create("t", [[1, 2, KAFKA], [KAFKA, 1, 2]])
    mixed.produce("t", new_values())
    kafka = mixed.brokers[KAFKA]
    kafka.kill()
    mixed.until(lambda: mixed.in_sync("t") == [{1, 2}] * 2)
    mixed.delete("t")
    replicas = [*tmp_path.glob("*/t-?"), *tmp_path.glob("*/*/t-?")]
    assert replicas
    assert {path.relative_to(tmp_path).parts[0] for path in replicas} <= {"1", "2", str(KAFKA)}
    assert children(mixed, "/admin/delete_topics") == ["t"]
    kafka.start()
    mixed.until(lambda: children(mixed, "/admin/delete_topics") == [])
    mixed.until(lambda: not [*tmp_path.glob("*/t-?"), *tmp_path.glob("*/*/t-?")])
    assert "t" not in children(mixed, "/brokers/topics")
    mixed.create("t", [[1, 2, KAFKA]])
