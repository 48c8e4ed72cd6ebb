"""Acknowledged records survive any change of controller and leaders: Odradek processes over a real ZooKeeper, also with
Apache Kafka 3.9 in the same cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from odradek_peers import ZooKeeperServer

from compat_tests.zookeeper.members import WAIT_S, Members, OdradekMember
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
def members(server: ZooKeeperServer, tmp_path: Path) -> Iterator[Members]:
    found = Members(server, f"/members/{next(_chroots)}", tmp_path)
    yield found
    found.close()


@pytest.fixture
def mixed(members: Members) -> Members:
    """Brokers 1 and 2 are ours, 3 is Kafka's."""
    members.odradek(1)
    members.odradek(2)
    members.kafka(KAFKA)
    members.until(lambda: len(members.admin().list_topics(timeout=10).brokers) == 3)
    return members


def some(count: int = 500) -> list[bytes]:
    """Return new values."""
    return [b"%d" % next(_numbers) for _ in range(count)]


def test_three_brokers_continue_when_the_controller_is_killed(members: Members) -> None:
    for broker in (1, 2, 3):
        members.odradek(broker)
    members.until(lambda: len(members.admin().list_topics(timeout=10).brokers) == 3)
    members.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    members.produce("t", some())
    assert members.read_as_group("t", "g", 500) == 500
    victim = members.controller()
    members.members[victim].kill()
    members.produce("t", some())
    members.until(lambda: members.controller() not in (victim, -1))
    members.members[victim].start()
    members.until(lambda: members.in_sync("t") == [{1, 2, 3}] * 3)
    members.produce("t", some())
    assert members.read_as_group("t", "g", 1000) == 1000
    members.assert_all_there("t")


def test_a_broker_paused_beyond_its_session_timeout_returns(members: Members) -> None:
    for broker in (1, 2, 3):
        members.odradek(broker)
    members.until(lambda: len(members.admin().list_topics(timeout=10).brokers) == 3)
    members.create("t", [[1, 2, 3]])
    sleeper = members.members[1]
    assert isinstance(sleeper, OdradekMember)
    sleeper.pause()
    members.produce("t", some())
    sleeper.go_on()
    members.until(lambda: members.in_sync("t") == [{1, 2, 3}])
    members.produce("t", some())
    members.assert_all_there("t")


@pytest.mark.parametrize("controller", [1, KAFKA])
def test_brokers_of_kafka_and_odradek_form_one_cluster(mixed: Members, controller: int) -> None:
    mixed.make_controller(controller)
    mixed.create("t", [[1, KAFKA, 2], [KAFKA, 2, 1], [2, 1, KAFKA]])
    mixed.until(lambda: mixed.leaders("t") == [1, KAFKA, 2])
    mixed.produce("t", some())
    assert mixed.read_as_group("t", "g", 500) == 500
    mixed.members[2].stop()
    mixed.until(lambda: mixed.leaders("t")[2] == 1)
    mixed.produce("t", some())
    mixed.members[2].start()
    mixed.until(lambda: mixed.in_sync("t") == [{1, 2, KAFKA}] * 3)
    mixed.produce("t", some())
    mixed.assert_all_there("t")
    mixed.delete("t")


def test_kafkas_broker_is_killed_as_controller_and_leader(mixed: Members) -> None:
    mixed.make_controller(KAFKA)
    mixed.create("t", [[KAFKA, 1, 2], [KAFKA, 2, 1]])
    mixed.produce("t", some())
    mixed.members[KAFKA].kill()
    mixed.produce("t", some())
    assert mixed.controller() in (1, 2)
    mixed.members[KAFKA].start()
    mixed.until(lambda: mixed.in_sync("t") == [{1, 2, KAFKA}] * 2)
    mixed.produce("t", some())
    mixed.members[KAFKA].stop()
    mixed.produce("t", some())
    mixed.assert_all_there("t")


@pytest.mark.parametrize("controller", [1, KAFKA])
def test_controllers_and_brokers_use_the_control_plane_listener(members: Members, controller: int) -> None:
    taps = {}
    for broker in (1, 2, KAFKA):
        taps[broker], settings = members.control_plane(broker)
        start = members.kafka if broker == KAFKA else members.odradek
        start(broker, **settings)
    members.until(lambda: len(members.admin().list_topics(timeout=10).brokers) == 3)
    members.make_controller(controller)
    members.create("t", [[1, KAFKA, 2], [KAFKA, 2, 1], [2, 1, KAFKA]])
    members.produce("t", some())
    for tap in taps.values():
        tap.asked.clear()
    # The leader that is not the controller is of the other kind, and sends AlterPartition when broker 2 is back.
    members.members[2].stop()
    members.members[2].start()
    members.until(lambda: members.in_sync("t") == [{1, 2, KAFKA}] * 3)
    members.produce("t", some())
    members.assert_all_there("t")
    members.delete("t")
    other_taps = [tap for broker, tap in taps.items() if broker != controller]
    members.until(lambda: all({LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA} <= tap.asked for tap in other_taps))
    assert ALTER_PARTITION in taps[controller].asked


@pytest.mark.parametrize("controller", [1, KAFKA])
@pytest.mark.parametrize("victim", [2, KAFKA])
def test_other_brokers_lead_after_a_log_directory_failure(
    members: Members, tmp_path: Path, controller: int, victim: int
) -> None:
    """With each controller, on each kind of broker: a log directory is replaced by a file."""
    directories = [tmp_path / f"{victim}-{name}" for name in "ab"]
    two = ",".join(map(str, directories))
    # Long sessions, so that the controller stays the same on a busy machine.
    patient = {"zookeeper.session.timeout.ms": "30000"}
    members.odradek(1, **patient)
    members.odradek(2, **patient, **({"log.dirs": two} if victim == 2 else {}))
    members.kafka(KAFKA, **patient, **({"log.dirs": two} if victim == KAFKA else {}))
    members.until(lambda: len(members.admin().list_topics(timeout=10).brokers) == 3)
    # FindCoordinator creates an internal topic; Kafka's brokers create it without the controller. Our controller
    # resigns when it finds such a conflicting write. Do this before the test needs a certain controller.
    with Client(members.bootstrap_servers, timeout_s=WAIT_S) as client:
        client.coordinator("reader")
    members.make_controller(controller)
    others = [broker for broker in (1, 2, KAFKA) if broker != victim]
    members.create("t", [[victim, *others]] * 4, segment_bytes="1100000")
    members.until(lambda: members.leaders("t") == [victim] * 4)
    members.produce("t", some())
    failing = {int(path.name[2:]) for path in directories[0].glob("t-?")}
    assert failing
    assert failing != {0, 1, 2, 3}
    directories[0].rename(tmp_path / "gone")
    directories[0].touch()
    # The active segment of each partition fills up: the next one needs the directory.
    members.produce("t", [value + b"x" * 1000 for value in some(12_000)])
    expected = [others[0] if index in failing else victim for index in range(4)]
    members.until(lambda: members.leaders("t") == expected, expected)
    members.until(lambda: members.in_sync("t")[min(failing)] == set(others))
    members.produce("t", some())
    members.assert_all_there("t")
    assert members.controller() == controller, members.members[controller].log_tail()


def children(members: Members, path: str) -> list[str]:
    kazoo = KazooClient(members.zookeeper)
    kazoo.start()
    try:
        return sorted(kazoo.get_children(path))
    finally:
        kazoo.stop()
        kazoo.close()


def test_kafkas_broker_deletes_a_topic_deleted_while_it_was_down(mixed: Members, tmp_path: Path) -> None:
    mixed.make_controller(1)
    mixed.create("t", [[1, 2, KAFKA], [KAFKA, 1, 2]])
    mixed.produce("t", some())
    kafka = mixed.members[KAFKA]
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
