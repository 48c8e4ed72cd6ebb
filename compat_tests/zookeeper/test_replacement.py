"""Brokers of Odradek replace Kafka's and the reverse while clients work: one by one in the same directory, one by one
as new brokers, and by moving leaders back and forth. No record is lost, duplicated or out of order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.oracle.peer import Peer
from compat_tests.zookeeper.load import Load
from compat_tests.zookeeper.members import WAIT_S, Members

pytestmark = pytest.mark.peers

_BROKERS = (1, 2, 3)
_ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_PREFERRED = 0
_SESSION_MS = 15_000
_INTERNAL = "__consumer_offsets"


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with ZooKeeperServer() as server:
        found = Members(server, "/kafka", tmp_path, session_ms=_SESSION_MS)
        yield found
        found.close()


def test_every_broker_is_replaced_in_its_directory_and_back(members: Members) -> None:
    members.kafka(*_BROKERS)
    members.create("t", _ASSIGNMENT)
    with Load(members.bootstrap_servers, "t", len(_ASSIGNMENT)) as load:
        load.until_more()
        for broker in (*_BROKERS, *_BROKERS):
            members.replace(broker)
            members.until_in_sync("t", _INTERNAL)
            _elect_preferred(members, [1, 2, 3])
            load.until_more()
            if broker == 1:
                for leader in (2, 1, 2, 1):
                    _lead(members, leader)
                    load.until_more(200)
    load.finish(members.bootstrap_servers)
    members.assert_replicas_agree("t", _INTERNAL)


def test_every_broker_is_replaced_by_a_new_one_and_back(members: Members) -> None:
    members.kafka(*_BROKERS)
    members.create("t", _ASSIGNMENT)
    start: Callable[[int], None]
    with Load(members.bootstrap_servers, "t", len(_ASSIGNMENT)) as load:
        load.until_more()
        for start, first in ((members.odradek, 11), (members.kafka, 21)):
            for broker, old in enumerate(tuple(members.members), start=first):
                start(broker)
                members.until(lambda: len(members.admin().list_topics(timeout=WAIT_S).brokers) == 4)
                members.run("reassign", "--drain", str(old), "--wait")
                load.until_more()
                members.remove(old)
                members.until_in_sync("t", _INTERNAL)
                load.until_more()
    load.finish(members.bootstrap_servers)
    members.assert_replicas_agree("t", _INTERNAL)


def _elect_preferred(members: Members, wanted: list[int]) -> None:
    """Elect the preferred leaders, repeatedly, because the controller may not know yet that a broker runs."""
    responses: list[object] = []

    def led() -> bool:
        controller = members.members.get(members.controller())
        if controller is not None:
            body = {"election_type": _PREFERRED, "topic_partitions": None, "timeout_ms": 5000}
            responses.append(Peer("the controller", controller.bootstrap_servers).ask("ElectLeaders", 2, body))
        return members.leaders("t") == wanted

    members.until(led, lambda: (members.leaders("t"), responses))


def _lead(members: Members, leader: int) -> None:
    """Make broker 1 or 2 the preferred leader of partition 0, and elect it."""
    replicas = [leader, 3 - leader, 3]
    plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": replicas}]}
    file = members.directory / "plan.json"
    file.write_text(json.dumps(plan))
    members.run("reassign", "--wait", "--file", str(file))
    _elect_preferred(members, [leader, 2, 3])
