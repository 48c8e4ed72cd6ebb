"""Replicas that move between the two log directories of a broker: the responses of Kafka 4.3 and Odradek."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek_peers import KAFKA_4_3, ApacheKafka

from compat_tests.brokers import COMMON_CONFIG
from compat_tests.oracle.batches import batch
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer, Var
from compat_tests.oracle.schema import Body
from odradek import Cluster

pytestmark = pytest.mark.peers

_WAIT_S, _PAUSE_S = 60.0, 0.05
_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
HERE, THERE = Var("here"), Var("there")
"""The log directory in which a topic's partition 0 was created, and the other one."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, broker_name: str) -> Iterator[Pair]:
    if broker_name != "odradek":
        pytest.skip("only Odradek is compared with Kafka here")
    directory = tmp_path_factory.mktemp("dirs")
    kafka_config = {**COMMON_CONFIG, "log.dirs": _dirs(directory / "kafka")}
    kafka = ApacheKafka(KAFKA_4_3, directory=directory / "kafka", heap="320M", config=kafka_config)
    ours = Cluster(process=True, config={"node.id": "1", **COMMON_CONFIG, "log.dirs": _dirs(directory / "ours")})
    with kafka, ours:
        peers = Peer("kafka", kafka.bootstrap_servers), Peer("ours", ours.bootstrap_servers)
        yield Pair(*peers)
        for peer in peers:
            peer.close()


def _dirs(directory: Path) -> str:
    return f"{directory / 'data'},{directory / 'second'}"


def _both(pair: Pair) -> tuple[Peer, Peer]:
    return pair.kafka, pair.ours


def _create(pair: Pair, name: str, *, batches: int = 0) -> str:
    """Create a topic of one partition with batches of 800 kB, and remember its log directory."""
    pair.create_topic(name)
    records = batch([bytes(4000)] * 200)
    for _ in range(batches):
        data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
        pair.ask("Produce", 9, {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": [data]})
    for peer in _both(pair):
        found = {result["log_dir"]: bool(result["topics"]) for result in _describe(peer, name)}
        peer.remember("here", next(path for path, condition in found.items() if condition))
        peer.remember("there", next(path for path, condition in found.items() if not condition))
    return name


def _describe(peer: Peer, *topics: str) -> list[Body]:
    asked = [{"topic": name, "partitions": [0, 1]} for name in topics]
    found: list[Body] = peer.ask("DescribeLogDirs", 4, {"topics": asked})["results"]
    return found


def _compare_log_dirs(pair: Pair, *topics: str) -> None:
    """Compare DescribeLogDirs, without the sizes of future logs, which depend on the progress of each broker."""

    def select(response: Body) -> Body:
        for result in response["results"]:
            for topic in result["topics"]:
                for each in topic["partitions"]:
                    if each["is_future_key"]:
                        each["partition_size"], each["offset_lag"] = "<copied>", each["offset_lag"] > 0
        return response

    asked = [{"topic": name, "partitions": [0, 1]} for name in topics]
    pair.ask("DescribeLogDirs", 4, {"topics": asked}, select)


def _alter(pair: Pair, directory: object, *topics: str, version: int = 2, partitions: tuple[int, ...] = (0,)) -> None:
    wanted = {"path": directory, "topics": [{"name": name, "partitions": [*partitions]} for name in topics]}
    pair.ask("AlterReplicaLogDirs", version, {"dirs": [wanted]})


def _until(pair: Pair, condition: Callable[[Peer], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    for peer in _both(pair):
        while not condition(peer):
            assert time.monotonic() < deadline, f"the condition is not true on {peer.name} after {_WAIT_S:g} s"
            time.sleep(_PAUSE_S)


def _until_moved(pair: Pair, name: str, where: Var) -> None:
    def moved(peer: Peer) -> bool:
        holders = [result["log_dir"] for result in _describe(peer, name) if result["topics"]]
        return holders == [peer.known[where.name]]

    _until(pair, moved)


@pytest.fixture
def throttled(pair: Pair) -> Iterator[None]:
    """Throttle the moves, so that they stop after the first round of copying."""
    _throttle(pair, "1")
    yield
    _throttle(pair, None)


def _throttle(pair: Pair, rate: str | None) -> None:
    config = {"name": _THROTTLE, "config_operation": 1 if rate is None else 0, "value": rate}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    pair.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    asked: Body = {
        "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": [_THROTTLE]}],
        "include_synonyms": False, "include_documentation": False,
    }  # fmt: skip

    def applied(peer: Peer) -> bool:
        found = peer.ask("DescribeConfigs", 4, asked)["results"][0]["configs"]
        return ("1" in [each["value"] for each in found]) == (rate is not None)

    _until(pair, applied)


def test_a_replica_moves_to_the_other_directory_and_back(pair: Pair) -> None:
    name = _create(pair, "there-and-back", batches=2)
    _compare_log_dirs(pair, name)
    _alter(pair, HERE, name)
    _compare_log_dirs(pair, name)
    for where in (THERE, HERE):
        _alter(pair, where, name)
        _until_moved(pair, name, where)
        _compare_log_dirs(pair, name)


@pytest.mark.usefixtures("throttled")
def test_a_future_replica_is_listed_until_its_move_is_cancelled(pair: Pair) -> None:
    name = _create(pair, "in-progress", batches=10)
    _alter(pair, THERE, name)
    _compare_log_dirs(pair, name)
    _alter(pair, THERE, name)
    _compare_log_dirs(pair, name)
    _alter(pair, HERE, name)
    _compare_log_dirs(pair, name)
    _alter(pair, THERE, name)
    _compare_log_dirs(pair, name)
    pair.ask("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 30_000})
    _until(pair, lambda peer: not any(result["topics"] for result in _describe(peer, name)))
    _compare_log_dirs(pair, name)


def test_a_throttled_future_replica_replaces_the_current_one_later(pair: Pair) -> None:
    name = _create(pair, "held-back", batches=10)
    _throttle(pair, "1")
    try:
        _alter(pair, THERE, name)
        _compare_log_dirs(pair, name)
    finally:
        _throttle(pair, None)
    _until_moved(pair, name, THERE)
    _compare_log_dirs(pair, name)


@pytest.mark.parametrize("version", [1, 2])
def test_alter_replica_log_dirs_errors(pair: Pair, version: int) -> None:
    name = _create(pair, f"stays-{version}")
    for path in ("/no/such/folder", "", "data"):
        _alter(pair, path, name, "no-such-topic", version=version)
    _alter(pair, THERE, "no-such-topic", "x" * 249, version=version)
    _alter(pair, THERE, name, version=version, partitions=(1, -1, 7))
    pair.ask("AlterReplicaLogDirs", version, {"dirs": []})
    pair.ask("AlterReplicaLogDirs", version, {"dirs": [{"path": THERE, "topics": []}]})
    _compare_log_dirs(pair, name, "no-such-topic")


def test_a_log_directory_can_be_chosen_before_the_topic_exists(pair: Pair) -> None:
    _create(pair, "before")
    for wanted in (HERE, THERE):
        name = f"wanted-{wanted.name}"
        _alter(pair, wanted, name)
        pair.create_topic(name)
        _compare_log_dirs(pair, name)
