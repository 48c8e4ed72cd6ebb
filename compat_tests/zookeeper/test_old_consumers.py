"""The consumers of Kafka 1.1 that keep their groups in ZooKeeper, high-level and simple, with Odradek's brokers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from odradek_peers import KAFKA_1_1, JavaTools, RunningTool

from compat_tests.oracle.peer import Peer
from compat_tests.zookeeper.cluster import ZooKeeperCluster

pytestmark = pytest.mark.peers

_TOOLS = JavaTools(KAFKA_1_1)
_DRIVERS = Path(__file__).parents[1] / "drivers"
_MEMBER, _SIMPLE = _DRIVERS / "OldGroupMember.java", _DRIVERS / "OldSimpleConsumer.java"
_names = (f"read-{number}" for number in itertools.count())
_numbers = itertools.count()
_EARLIEST, _LATEST = "-2", "-1"


class Group:
    """High-level consumers of one group and topic, each in its own process."""

    def __init__(self, cluster: ZooKeeperCluster, zookeeper: KazooClient, topic: str, *properties: str) -> None:
        self.topic = topic
        self.name = f"group-of-{topic}"
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._properties = (
            "auto.offset.reset=smallest",
            "auto.commit.interval.ms=200",
            "zookeeper.session.timeout.ms=2000",
            *properties,
        )
        self._running: dict[str, RunningTool] = {}
        self.read: list[str] = []

    def join(self, consumer: str) -> None:
        self._running[consumer] = _TOOLS.start(
            str(_MEMBER),
            self.topic,
            f"zookeeper.connect={self._cluster.zookeeper}",
            f"group.id={self.name}",
            f"consumer.id={consumer}",
            *self._properties,
        )

    def leave(self, consumer: str) -> None:
        tool = self._running.pop(consumer)
        tool.terminate()
        self.read += tool.lines

    def kill(self, consumer: str) -> None:
        tool = self._running.pop(consumer)
        tool.kill()
        self.read += tool.lines

    def close(self) -> None:
        for tool in self._running.values():
            tool.kill()

    def until_owned(self, **shares: int) -> None:
        """Wait until each of these consumers owns this number of partitions."""
        self._cluster.until(lambda: self._owned() == shares, shares)

    def until_read(self, values: set[str]) -> None:
        def all_read() -> bool:
            for tool in self._running.values():
                while tool.poll_line(0.01) is not None:
                    pass
            return {*self.read, *(line for tool in self._running.values() for line in tool.lines)} >= values

        self._cluster.until(all_read, f"values of {self.topic} are unread")

    def committed(self) -> dict[int, int]:
        """Return the group's offsets in ZooKeeper by partition."""
        found = self._children(f"/consumers/{self.name}/offsets/{self.topic}")
        return {int(partition): int(data) for partition, data in found.items()}

    def _owned(self) -> dict[str, int]:
        shares: dict[str, int] = {}
        for owner in self._children(f"/consumers/{self.name}/owners/{self.topic}").values():
            # <group>_<consumer.id>-<number of the thread>
            consumer = owner.decode().removeprefix(f"{self.name}_").rpartition("-")[0]
            shares[consumer] = shares.get(consumer, 0) + 1
        return shares

    def _children(self, path: str) -> dict[str, bytes]:
        try:
            return {name: self._zookeeper.get(f"{path}/{name}")[0] for name in self._zookeeper.get_children(path)}
        except NoNodeError:
            return {}


@pytest.fixture
def group_of(cluster: ZooKeeperCluster, zookeeper: KazooClient) -> Iterator[Callable[..., Group]]:
    with ExitStack() as stack:

        def make(topic: str, *properties: str) -> Group:
            group = Group(cluster, zookeeper, topic, *properties)
            stack.callback(group.close)
            return group

        yield make


@pytest.fixture
def topic(cluster: ZooKeeperCluster) -> str:
    """A topic of four partitions."""
    name = next(_names)
    cluster.create(name, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
    return name


def _produce(cluster: ZooKeeperCluster, topic: str, count: int = 200) -> set[str]:
    values = [f"{next(_numbers)}" for _ in range(count)]
    cluster.produce(topic, [value.encode() for value in values])
    return set(values)


def _ends(cluster: ZooKeeperCluster, topic: str) -> dict[int, int]:
    """Return the end offsets by partition."""
    found = {}
    for partition, leader in enumerate(cluster.leaders(topic)):
        with _connection(cluster, leader) as ask:
            wanted = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}
            response = ask("ListOffsets", 1, {"replica_id": -1, "topics": [wanted]})
        found[partition] = response["topics"][0]["partitions"][0]["offset"]
    return found


class _connection:
    """A context manager with a connection to a broker; it returns the function that sends requests."""

    def __init__(self, cluster: ZooKeeperCluster, broker: int) -> None:
        self._peer = Peer("ours", cluster.brokers[broker].bootstrap_servers)

    def __enter__(self) -> Callable[[str, int, dict[str, Any]], dict[str, Any]]:
        return self._peer.ask

    def __exit__(self, *error: object) -> None:
        self._peer.close()


def _fetched(cluster: ZooKeeperCluster, group: str, topic: str, version: int = 0) -> dict[int, int]:
    """Return the offsets of OffsetFetch: version 0 reads ZooKeeper, version 1 the coordinator."""
    with _connection(cluster, _coordinator(cluster, group) if version else 2) as ask:
        asked = {"name": topic, "partition_indexes": [0, 1, 2, 3]}
        response = ask("OffsetFetch", version, {"group_id": group, "topics": [asked]})
    return {each["partition_index"]: each["committed_offset"] for each in response["topics"][0]["partitions"]}


def _coordinator(cluster: ZooKeeperCluster, group: str) -> int:
    with _connection(cluster, 1) as ask:
        return int(ask("FindCoordinator", 0, {"key": group})["node_id"])


def test_old_consumers_rebalance_when_one_leaves_or_dies(
    cluster: ZooKeeperCluster, group_of: Callable[..., Group], topic: str
) -> None:
    group = group_of(topic)
    group.join("a")
    group.until_owned(a=4)
    values = _produce(cluster, topic)
    group.until_read(values)
    group.join("b")
    group.until_owned(a=2, b=2)
    values |= _produce(cluster, topic)
    group.until_read(values)
    group.leave("a")
    group.until_owned(b=4)
    values |= _produce(cluster, topic)
    group.until_read(values)
    group.join("c")
    group.until_owned(b=2, c=2)
    group.kill("b")
    group.until_owned(c=4)
    values |= _produce(cluster, topic)
    group.until_read(values)
    group.leave("c")

    assert group.committed() == _ends(cluster, topic)
    assert _fetched(cluster, group.name, topic) == group.committed()
    assert set(group.read) == values


def test_a_consumer_follows_the_leaders_through_a_broker_restart(
    cluster: ZooKeeperCluster, group_of: Callable[..., Group], topic: str
) -> None:
    group = group_of(topic)
    group.join("a")
    values = _produce(cluster, topic)
    group.until_read(values)
    cluster.brokers[2].stop()
    try:
        values |= _produce(cluster, topic)
        group.until_read(values)
    finally:
        cluster.brokers[2].start()
    cluster.until(lambda: cluster.in_sync(topic) == [{1, 2, 3}] * 4)
    cluster.brokers[1].kill()
    try:
        values |= _produce(cluster, topic)
        group.until_read(values)
    finally:
        cluster.brokers[1].start()
    cluster.until(lambda: cluster.in_sync(topic) == [{1, 2, 3}] * 4)
    values |= _produce(cluster, topic)
    group.until_read(values)
    group.leave("a")
    assert group.committed() == _ends(cluster, topic)
    assert set(group.read) == values


def test_a_consumer_reads_added_partitions(
    cluster: ZooKeeperCluster, group_of: Callable[..., Group], topic: str
) -> None:
    group = group_of(topic)
    group.join("a")
    group.until_owned(a=4)
    _TOOLS.run(
        "kafka.admin.TopicCommand", "--zookeeper", cluster.zookeeper, "--alter", "--topic", topic, "--partitions", "6"
    )
    group.until_owned(a=6)
    cluster.until(lambda: len(cluster.leaders(topic)) == 6 and -1 not in cluster.leaders(topic))
    group.until_read(_produce(cluster, topic))


def test_a_consumer_begins_at_an_offset_of_offset_commit_v0(
    cluster: ZooKeeperCluster, group_of: Callable[..., Group], topic: str
) -> None:
    _produce(cluster, topic)
    group = group_of(topic)
    ends = _ends(cluster, topic)
    wanted = [
        {"partition_index": index, "committed_offset": end, "committed_metadata": ""} for index, end in ends.items()
    ]
    with _connection(cluster, 3) as ask:
        response = ask("OffsetCommit", 0, {"group_id": group.name, "topics": [{"name": topic, "partitions": wanted}]})
    assert [each["error_code"] for each in response["topics"][0]["partitions"]] == [0] * 4
    assert group.committed() == ends

    values = _produce(cluster, topic)
    group.join("a")
    group.until_read(values)
    group.leave("a")
    assert sorted(group.read) == sorted(values)


def test_dual_commit_writes_offsets_to_kafka_and_zookeeper(
    cluster: ZooKeeperCluster, group_of: Callable[..., Group], topic: str
) -> None:
    group = group_of(topic, "offsets.storage=kafka", "dual.commit.enabled=true")
    group.join("a")
    values = _produce(cluster, topic)
    group.until_read(values)
    group.leave("a")
    ends = _ends(cluster, topic)
    assert group.committed() == ends
    assert _fetched(cluster, group.name, topic, version=1) == ends

    values = _produce(cluster, topic)
    only_kafka = group_of(topic, "offsets.storage=kafka", "dual.commit.enabled=false")
    only_kafka.join("b")
    only_kafka.until_read(values)
    only_kafka.leave("b")
    assert sorted(only_kafka.read) == sorted(values)
    assert only_kafka.committed() == ends
    assert _fetched(cluster, group.name, topic, version=1) == _ends(cluster, topic)


def test_the_simple_consumer_fetches_lists_offsets_and_commits(
    cluster: ZooKeeperCluster, zookeeper: KazooClient
) -> None:
    topic = next(_names)
    cluster.create(topic, [[2, 1, 3], [3, 1, 2]])
    cluster.produce(topic, [b"%d" % number for number in range(100)])
    ends = _ends(cluster, topic)
    host, _, port = cluster.brokers[2].bootstrap_servers.rpartition(":")
    with _TOOLS.start(str(_SIMPLE), host, port) as simple:

        def respond(line: str) -> str:
            simple.write(line + "\n")
            return simple.next_line()

        assert respond(f"leader {topic} 0") == f"2 {host}:{port}"
        assert respond(f"leader {topic} 1") == f"3 {cluster.brokers[3].bootstrap_servers}"
        assert respond(f"offsets {topic} 0 {_LATEST} 1") == f"0 {ends[0]}"
        assert respond(f"offsets {topic} 0 {_EARLIEST} 1") == "0 0"
        assert respond(f"offsets {topic} 0 {_LATEST} 5") == f"0 {ends[0]} 0"
        assert respond(f"offsets {topic} 1 {_LATEST} 1") == "6", "another broker leads"

        error, high_watermark, *records = respond(f"fetch {topic} 0 3").split()
        assert (error, high_watermark) == ("0", str(ends[0]))
        assert [int(record.partition("=")[0]) for record in records] == list(range(3, ends[0]))
        assert respond(f"fetch {topic} 0 {ends[0]}") == f"0 {ends[0]}"
        assert respond(f"fetch {topic} 0 {ends[0] + 1}").split()[0] == "1"

        path = f"/consumers/simple-group/offsets/{topic}/0"
        assert respond(f"committed simple-group {topic} 0") == "3 -1"
        assert respond(f"commit simple-group {topic} 0 7") == "NONE"
        assert zookeeper.get(path)[0] == b"7"
        zookeeper.set(path, b"9")
        assert respond(f"committed simple-group {topic} 0") == "0 9"
        assert respond("commit simple-group no-such-topic 0 7") == "UNKNOWN_TOPIC_OR_PARTITION"


def test_kafkas_tool_reads_the_znodes_of_a_group(
    cluster: ZooKeeperCluster, zookeeper: KazooClient, group_of: Callable[..., Group], topic: str
) -> None:
    group = group_of(topic)
    group.join("a")
    values = _produce(cluster, topic)
    group.until_read(values)
    (registered,) = zookeeper.get_children(f"/consumers/{group.name}/ids")
    found = json.loads(zookeeper.get(f"/consumers/{group.name}/ids/{registered}")[0])
    assert found["subscription"] == {topic: 1}
    output = _TOOLS.run(
        "kafka.admin.ConsumerGroupCommand", "--zookeeper", cluster.zookeeper, "--describe", "--group", group.name
    )
    lags = [line.split()[4] for line in output.splitlines() if line.startswith(topic)]
    assert len(lags) == 4
    group.leave("a")
