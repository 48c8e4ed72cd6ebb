"""The time in which a deposed leader may still serve requests, and no longer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from odradek_peers import ZooKeeperServer

from compat_tests.netns.deposed_leaders import Span, State, deposed, states

PARTITION = ("t", 0)


def state(moment: float, leader: int, *isr: int) -> State:
    return State(moment, PARTITION, leader, isr)


def test_a_deposed_leader_may_lag_until_it_joins_the_isr() -> None:
    history = [state(1, 1, 1, 2, 3), state(10, 2, 2, 3), state(20, 2, 1, 2, 3), state(30, 2, 2, 3)]
    assert deposed(history, [], 99) == [Span(1, PARTITION, 10, 20)]


def test_a_deposed_leader_outside_the_isr_may_lag_until_now() -> None:
    assert deposed([state(1, 1, 1, 2), state(10, 2, 2)], [], 99) == [Span(1, PARTITION, 10, 99)]


def test_a_deposed_leader_in_the_isr_may_lag_for_five_seconds() -> None:
    moved = [state(1, 1, 1, 2), state(10, 2, 1, 2)]
    assert deposed(moved, [], 99) == [Span(1, PARTITION, 10, 15)]
    assert deposed([*moved, state(40, 2, 2), state(50, 2, 1, 2)], [], 99) == [Span(1, PARTITION, 10, 15)]
    assert deposed([*moved, state(13, 2, 2), state(50, 2, 1, 2)], [], 99) == [Span(1, PARTITION, 10, 50)]


def test_a_deposed_leader_may_lag_only_while_it_is_alive() -> None:
    history = [state(1, 1, 1, 2, 3), state(10, 2, 2, 3), state(20, 2, 1, 2, 3)]
    assert deposed(history, [(1, 7)], 99) == []
    assert deposed(history, [(1, 12)], 99) == [Span(1, PARTITION, 10, 12)]
    assert deposed(history, [(1, 0.5), (2, 12), (1, 21)], 99) == [Span(1, PARTITION, 10, 20)]


def test_an_election_of_no_leader_deposes_no_leader() -> None:
    assert deposed([state(1, 1, 1, 2), state(10, -1, 1), state(20, 1, 1)], [], 99) == []
    assert deposed([state(1, 1, 1, 2), state(10, -1, 2), state(20, 2, 2)], [], 99) == [Span(1, PARTITION, 20, 99)]


def test_each_deposed_leader_has_its_own_span() -> None:
    history = [state(1, 1, 1, 2, 3), state(10, 2, 2, 3), state(12, 3, 3), state(20, 3, 1, 2, 3)]
    assert deposed(history, [], 99) == [Span(1, PARTITION, 10, 20), Span(2, PARTITION, 12, 20)]


@pytest.fixture
def zookeeper(tmp_path: Path) -> ZooKeeperServer:
    return ZooKeeperServer(directory=tmp_path)


@pytest.mark.peers
def test_the_transaction_log_of_zookeeper_names_the_leaders(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    def data(leader: int, *isr: int) -> bytes:
        return json.dumps({"version": 1, "leader": leader, "isr": isr, "leader_epoch": 0}).encode()

    path = "/chroot/brokers/topics/{}/partitions/{}/state"
    with zookeeper:
        client = KazooClient(zookeeper.connect_string)
        client.start()
        client.create(path.format("a", 11), data(1, 1, 2), makepath=True)
        client.create(path.format("b", 0), data(3, 3), makepath=True)
        together = client.transaction()
        together.check("/chroot", 0)
        together.set_data(path.format("a", 11), data(2, 2))
        together.set_data(path.format("b", 0), data(-1, 3))
        together.commit()
        failing = client.transaction()
        failing.set_data(path.format("a", 11), data(9, 9))
        failing.check("/chroot", 7)
        failing.commit()
        zookeeper.kill()
        zookeeper.start()
        client.set(path.format("b", 0), data(3, 3, 1))
        last_ms = client.exists(path.format("b", 0)).mtime
        client.stop()
        client.close()
        found = states(tmp_path / "data")
    assert [each[1:] for each in found] == [
        (("a", 11), 1, (1, 2)),
        (("b", 0), 3, (3,)),
        (("a", 11), 2, (2,)),
        (("b", 0), -1, (3,)),
        (("b", 0), 3, (3, 1)),
    ]
    assert found[-1].moment == last_ms / 1000
    assert [each.moment for each in found] == sorted(each.moment for each in found)
