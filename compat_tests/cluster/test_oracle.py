"""Reassignments, elections and assigned replicas: the responses of three Kafka 4.3 brokers and three of ours agree."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from compat_tests.cluster.clusters import BrokerCluster, running
from compat_tests.oracle.batches import batch
from compat_tests.oracle.pair import Pair, repeat_until_equal
from compat_tests.oracle.peer import Peer, topic_on
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers

_numbers = count()
_ALTER, _LIST, _ELECT = "AlterPartitionReassignments", "ListPartitionReassignments", "ElectLeaders"
PREFERRED, UNCLEAN = 0, 1
_TOPIC, _BROKER = 2, 4
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_LEADERS_RATE, _FOLLOWERS_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
_WAIT_S, _EQUAL_WITHIN_S, _PAUSE_S = 60.0, 30.0, 0.02


class Clusters:
    """Both clusters, and a connection to broker 0 of each."""

    def __init__(self, kafka: BrokerCluster, ours: BrokerCluster) -> None:
        self._clusters = (kafka, ours)
        self._peers = [
            Peer(name, cluster.bootstrap_servers.split(",")[0])
            for name, cluster in zip(("kafka", "ours"), self._clusters, strict=True)
        ]
        self.pair = Pair(*self._peers)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def start(self, broker: int) -> None:
        for cluster in self._clusters:
            cluster.start(broker)
        self.until(lambda peer: broker in _brokers(peer))

    def stop(self, broker: int) -> None:
        """Stop a broker, and wait until Metadata no longer lists it."""
        for cluster in self._clusters:
            cluster.stop(broker)
        self.until(lambda peer: broker not in _brokers(peer))

    def until(self, condition: Callable[[Peer], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        for peer in self._peers:
            while not condition(peer):
                assert time.monotonic() < deadline, f"the condition is not true for {peer.name} after {_WAIT_S:g} s"
                time.sleep(_PAUSE_S)

    def create(self, *replicas: Sequence[int], configs: dict[str, str] | None = None) -> str:
        """Create a topic with these replicas, wait until they are in sync, and return its name."""
        name = f"t{next(_numbers)}"
        topic = topic_on(name, replicas, configs or {})
        for peer in self._peers:
            response = peer.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000})
            assert response["topics"][0]["error_code"] == 0, response
        self.until(lambda peer: _in_sync(peer, name, len(replicas)))
        return name

    def configure(self, kind: int, name: str, configs: dict[str, str | None]) -> None:
        """Set these configurations; None deletes one."""
        wanted = [
            {"name": key, "config_operation": int(value is None), "value": value} for key, value in configs.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": wanted}
        self.pair.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})

    def set_rate(self, rate: int | None) -> None:
        """Set the throttle as the default of all brokers; a broker's own value would need a request to that broker."""
        value = None if rate is None else str(rate)
        self.configure(_BROKER, "", {_LEADERS_RATE: value, _FOLLOWERS_RATE: value})

    def seconds_until(self, condition: Callable[[Peer], bool]) -> dict[str, float]:
        """Return the seconds until the condition holds, by cluster."""
        begun, took = time.monotonic(), dict[str, float]()
        while len(took) < len(self._peers):
            assert time.monotonic() < begun + _WAIT_S, took
            for peer in self._peers:
                if peer.name not in took and condition(peer):
                    took[peer.name] = time.monotonic() - begun
            time.sleep(_PAUSE_S)
        return took

    def compare_partitions(self, *names: str) -> Body:
        """Compare leaders, replicas and ISR of topics, repeatedly, until the brokers have their controllers' last
        updates."""
        asked: Body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        return repeat_until_equal(lambda: self.pair.ask("Metadata", 8, asked, _partition_states), _EQUAL_WITHIN_S)

    def until_no_reassignment(self) -> None:
        """Wait until no reassignment is left."""
        everything: Body = {"topics": None, "timeout_ms": 30_000}
        self.until(lambda peer: not peer.ask(_LIST, 0, everything)["topics"])


def _brokers(peer: Peer) -> set[int]:
    return {broker["node_id"] for broker in peer.ask("Metadata", 8, {"topics": []})["brokers"]}


def _in_sync(peer: Peer, name: str, partitions: int) -> bool:
    response = peer.ask("Metadata", 8, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    found = response["topics"][0]["partitions"]
    return len(found) == partitions and all(
        sorted(each["isr_nodes"]) == sorted(each["replica_nodes"]) and each["leader_id"] >= 0 for each in found
    )


def _all_in_sync(peer: Peer) -> bool:
    return all(
        sorted(partition["isr_nodes"]) == sorted(partition["replica_nodes"])
        for topic in peer.ask("Metadata", 8, {"topics": None})["topics"]
        for partition in topic["partitions"]
    )


def _has_left(peer: Peer, name: str, index: int, broker: int) -> bool:
    response = peer.ask("Metadata", 8, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    (partition,) = (each for each in response["topics"][0]["partitions"] if each["partition_index"] == index)
    return broker not in partition["replica_nodes"]


def _partition_states(response: Body) -> object:
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            partition["isr_nodes"].sort()
            # The number of elections may differ between the controllers; other tests compare single elections.
            del partition["leader_epoch"]
    return response["topics"]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with running("kafka") as kafka, running("odradek") as ours:
        both = Clusters(kafka, ours)
        yield both
        both.close()


def _reassign(clusters: Clusters, version: int, *wanted: tuple[str, int, list[int] | None], **more: Any) -> Body:
    by_topic: dict[str, list[Body]] = {}
    for topic, index, replicas in wanted:
        by_topic.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    return clusters.pair.ask(_ALTER, version, {"topics": topics, "timeout_ms": 30_000, **more})


def _list_reassignments(clusters: Clusters, *wanted: tuple[str, list[int]]) -> Body:
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in wanted] if wanted else None
    asked: Body = {"topics": topics, "timeout_ms": 30_000}
    return repeat_until_equal(lambda: clusters.pair.ask(_LIST, 0, asked), _EQUAL_WITHIN_S)


def _by_partition(response: Body) -> Body:
    for topic in response["replica_election_results"]:
        topic["partition_result"].sort(key=lambda each: each["partition_id"])
    return response


def _elect(clusters: Clusters, version: int, kind: int, *wanted: tuple[str, list[int]]) -> Body:
    topics = [{"topic": name, "partitions": indexes} for name, indexes in wanted] if wanted else None
    body: Body = {"topic_partitions": topics, "timeout_ms": 30_000}
    if version >= 1:
        body["election_type"] = kind
    return clusters.pair.ask(_ELECT, version, body, _by_partition)


def test_topics_with_assigned_replicas(clusters: Clusters) -> None:
    def ask(name: str, *replicas: list[int], **more: Any) -> None:
        assigned = [{"partition_index": index, "broker_ids": each} for index, each in enumerate(replicas)]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assigned, **more}
        clusters.pair.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000}, _without_ids)

    ask("assigned-good", [0, 1, 2], [1, 2, 0], [2, 0, 1])
    ask("assigned-unlike", [0, 1], [2])
    ask("assigned-none", [])
    ask("assigned-unknown", [0, 7])
    ask("assigned-negative", [0, -1])
    ask("assigned-twice", [1, 1])
    ask("assigned-and-counted", [0], num_partitions=1)
    ask("assigned-and-replicated", [0], replication_factor=1)
    ask("assigned-gap", assignments=[{"partition_index": 1, "broker_ids": [0]}])
    ask("assigned-same-index", assignments=[{"partition_index": 0, "broker_ids": [0]}] * 2)
    ask("too-many-replicas", num_partitions=1, replication_factor=4)
    ask("no-replicas", num_partitions=1, replication_factor=0)
    clusters.until(lambda peer: _in_sync(peer, "assigned-good", 3))
    clusters.compare_partitions("assigned-good")


def _without_ids(response: Body) -> Body:
    for topic in response["topics"]:
        topic["topic_id"], topic["configs"] = "<chosen>", "<many>"
    return response


def test_partitions_with_assigned_replicas(clusters: Clusters) -> None:
    name = clusters.create([0, 1], [1, 2])

    def ask(total: int, *replicas: list[int], only: bool = False) -> None:
        topic = {"name": name, "count": total, "assignments": [{"broker_ids": each} for each in replicas]}
        clusters.pair.ask("CreatePartitions", 3, {"topics": [topic], "timeout_ms": 30_000, "validate_only": only})

    ask(3, [2, 0], only=True)
    ask(3, [2, 0])
    ask(4, [0])
    ask(4, [0, 1, 2])
    ask(4, [0, 7])
    ask(4, [0, 0])
    ask(4, [0, -1])
    ask(4, [])
    ask(4, [0, 1], [1, 2])
    ask(6, [0, 1])
    ask(5, [0, 1], [1])
    ask(5, [1, 0], [0, 2])
    clusters.until(lambda peer: _in_sync(peer, name, 5))
    clusters.compare_partitions(name)


@pytest.mark.parametrize("version", [0, 1])
def test_reassign_replicas(clusters: Clusters, version: int) -> None:
    name, other = clusters.create([0, 1], [1, 2], [2, 0]), clusters.create([0])

    for wanted in ([2, 1], [1, 2, 0], [0], [2], [2], [0, 1, 2], [2, 1, 0]):
        _reassign(clusters, version, (name, 0, wanted))
        clusters.until_no_reassignment()
        clusters.compare_partitions(name)
    _reassign(clusters, version, (name, 1, [0]), (name, 2, [1, 2]), (other, 0, [1, 2]))
    clusters.until_no_reassignment()
    clusters.compare_partitions(name, other)


@pytest.mark.parametrize("version", [0, 1])
def test_invalid_reassignments(clusters: Clusters, version: int) -> None:
    name = clusters.create([0, 1], [1, 2])

    for wanted in ([], [0, 0], [7], [0, 7], [-1], [0, -1], None):
        _reassign(clusters, version, (name, 0, wanted))
    _reassign(clusters, version, ("no-such-topic", 0, [1]))
    _reassign(clusters, version, ("", 0, [1]))
    _reassign(clusters, version, (name, 2, [1]))
    _reassign(clusters, version, (name, -1, [1]))
    _reassign(clusters, version, (name, 5, None))
    _reassign(clusters, version, (name, 0, [7]), (name, 9, [0]), (name, 1, [2, 1]))
    _reassign(clusters, version)
    clusters.until_no_reassignment()
    if version >= 1:
        for wanted in ([0], [0, 1, 2], [1, 2], []):
            _reassign(clusters, version, (name, 0, wanted), allow_replication_factor_change=False)
            clusters.until_no_reassignment()
    clusters.compare_partitions(name)
    clusters.pair.ask(_LIST, 0, {"topics": [], "timeout_ms": 30_000})
    _list_reassignments(clusters, ("no-such-topic", [0]))
    _list_reassignments(clusters, (name, [0, 1, 7, -1]))
    _list_reassignments(clusters, (name, []))


def test_reassignments_wait_for_a_broker_that_is_down(clusters: Clusters) -> None:
    name, other = clusters.create([0, 1], [1, 0], [0, 1]), clusters.create([0, 2], [2, 0])
    third = clusters.create([0, 1, 2], [2, 1, 0])
    clusters.stop(2)
    try:
        clusters.compare_partitions(name, other)
        _reassign(clusters, 1, (name, 0, [2, 1]), (name, 1, [1, 0, 2]), (name, 2, [0]), (other, 0, [0]))
        _list_reassignments(clusters)
        _list_reassignments(clusters, (name, [0]), (other, [0, 1]))
        _list_reassignments(clusters, (name, [1, 0, 2]))
        clusters.compare_partitions(name, other)

        # Another reassignment of the same partition before the first has completed.
        _reassign(clusters, 1, (name, 0, [2, 0]))
        _list_reassignments(clusters)
        _reassign(clusters, 1, (name, 1, [2, 0, 1]))
        _list_reassignments(clusters)
        _reassign(clusters, 1, (name, 0, [2]), allow_replication_factor_change=False)
        _list_reassignments(clusters)
        _reassign(clusters, 1, (name, 0, [1, 2]), allow_replication_factor_change=False)
        _list_reassignments(clusters)

        _reassign(clusters, 1, (name, 0, None), (name, 1, None), (name, 7, None))
        _list_reassignments(clusters)
        _reassign(clusters, 1, (name, 0, None))
        clusters.compare_partitions(name, other)

        for wanted in ([2, 1], [2, 0], [0, 2], [1, 2], [2], [2, 1], None):
            _reassign(clusters, 1, (name, 0, wanted))
            _list_reassignments(clusters)
            clusters.compare_partitions(name)

        _reassign(clusters, 1, (third, 0, [2, 0]), (third, 1, [0, 2]))
        _list_reassignments(clusters)
        clusters.compare_partitions(third)

        # The only remaining replica of the other topic is on a stopped broker.
        _reassign(clusters, 1, (other, 1, [2]))
        _list_reassignments(clusters)
        clusters.compare_partitions(other)
        _reassign(clusters, 1, (name, 1, [2]))
        _list_reassignments(clusters)
    finally:
        clusters.start(2)
    clusters.until_no_reassignment()
    clusters.compare_partitions(name, other)


def test_reassignments_complete_while_an_old_replica_is_down(clusters: Clusters) -> None:
    name = clusters.create([0, 2], [0, 2], [0, 2], [2, 0], [2, 1])
    clusters.stop(2)
    try:
        _reassign(clusters, 1, (name, 0, [1, 2]), (name, 1, [0, 1, 2]), (name, 2, [2, 1]), (name, 3, [1, 0]))
        clusters.until(lambda peer: _has_left(peer, name, 3, 2))
        _list_reassignments(clusters)
        clusters.compare_partitions(name)
    finally:
        clusters.start(2)
    clusters.until_no_reassignment()


def test_a_topic_gets_partitions_and_is_deleted_in_a_reassignment(clusters: Clusters) -> None:
    name = clusters.create([0], [1])
    clusters.stop(2)
    try:
        _reassign(clusters, 1, (name, 0, [2]))
        grown = {"name": name, "count": 3, "assignments": [{"broker_ids": [1]}]}
        clusters.pair.ask("CreatePartitions", 3, {"topics": [grown], "timeout_ms": 30_000, "validate_only": False})
        _list_reassignments(clusters)
        clusters.pair.ask("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 30_000})
        _list_reassignments(clusters)
    finally:
        clusters.start(2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elect_preferred_leaders(clusters: Clusters, version: int) -> None:
    name = clusters.create([1, 0], [0, 1], [1, 2], [2, 1])

    _elect(clusters, version, PREFERRED, (name, [0, 1]))
    _elect(clusters, version, PREFERRED, (name, [9]), ("no-such-topic", [0]), (name, [-1]))
    _elect(clusters, version, PREFERRED, (name, []))
    clusters.stop(1)
    try:
        clusters.compare_partitions(name)
        _elect(clusters, version, PREFERRED, (name, [0, 1, 2, 3]))
    finally:
        clusters.start(1)
    clusters.until(lambda peer: _in_sync(peer, name, 4))
    clusters.compare_partitions(name)
    _elect(clusters, version, PREFERRED, (name, [0]))
    clusters.compare_partitions(name)
    # Elect the preferred leaders of all partitions, in this topic and in others.
    clusters.until(_all_in_sync)
    for peer in (clusters.pair.kafka, clusters.pair.ours):
        peer.ask(_ELECT, 2, {"topic_partitions": None, "timeout_ms": 30_000, "election_type": PREFERRED})
    clusters.compare_partitions(name)
    _elect(clusters, version, PREFERRED)
    if version >= 1:
        _elect(clusters, version, 5, (name, [0, 9]), ("no-such-topic", [0]))
        _elect(clusters, version, 5)
        _elect(clusters, version, UNCLEAN, (name, [0, 9]), ("no-such-topic", [0]))


def test_elect_unclean_leaders(clusters: Clusters) -> None:
    # min.insync.replicas=1, because with 2 the last broker to leave the ISR would stay an eligible leader (KIP-966).
    name = clusters.create([1, 2], [2, 1], configs={"min.insync.replicas": "1"})
    clusters.stop(2)
    clusters.stop(1)
    try:
        clusters.compare_partitions(name)
        _elect(clusters, 2, PREFERRED, (name, [0, 1]))
        _elect(clusters, 2, UNCLEAN, (name, [0, 1]))
        _reassign(clusters, 1, (name, 0, [0, 1]), (name, 1, [0]))
        _list_reassignments(clusters)
        clusters.compare_partitions(name)
        clusters.start(2)
        clusters.compare_partitions(name)
        _elect(clusters, 2, UNCLEAN, (name, [0, 1]))
        clusters.compare_partitions(name)
    finally:
        clusters.start(1)
        if 2 not in _brokers(clusters.pair.kafka):
            clusters.start(2)
    clusters.until_no_reassignment()
    clusters.until(lambda peer: _in_sync(peer, name, 2))
    clusters.compare_partitions(name)


def test_a_partition_without_isr_and_eligible_leaders_stays_offline(clusters: Clusters) -> None:
    name = clusters.create([1, 2], configs={"min.insync.replicas": "2"})
    clusters.stop(2)
    clusters.stop(1)
    try:
        assert _eligible(clusters, name) == {"isr_nodes": [], "eligible_leader_replicas": [1, 2], "last_known_elr": [1]}
        # Any change of min.insync.replicas clears the eligible leaders (ClearElrRecord).
        clusters.configure(_TOPIC, name, {"min.insync.replicas": "1"})
        assert _eligible(clusters, name) == {"isr_nodes": [], "eligible_leader_replicas": [], "last_known_elr": []}
    finally:
        clusters.start(1)
        clusters.start(2)
    assert _leader(clusters, name) == -1
    _elect(clusters, 2, PREFERRED, (name, [0]))
    assert _leader(clusters, name) == -1
    _elect(clusters, 2, UNCLEAN, (name, [0]))
    clusters.until(lambda peer: _in_sync(peer, name, 1))
    clusters.compare_partitions(name)


def _leader(clusters: Clusters, name: str) -> Any:
    topics: Any = clusters.compare_partitions(name)
    return topics[0]["partitions"][0]["leader_id"]


def _eligible(clusters: Clusters, name: str) -> Body:
    """Compare the ISR and the eligible leaders of a topic with one partition, and return Kafka's."""

    def select(response: Body) -> object:
        (partition,) = response["topics"][0]["partitions"]
        return {key: sorted(partition[key]) for key in ("isr_nodes", "eligible_leader_replicas", "last_known_elr")}

    asked: Body = {"topics": [{"name": name}], "response_partition_limit": 10, "cursor": None}
    return repeat_until_equal(lambda: clusters.pair.ask("DescribeTopicPartitions", 0, asked, select), _EQUAL_WITHIN_S)


def test_a_throttled_reassignment_is_listed_and_described(clusters: Clusters) -> None:
    name, rate = clusters.create([0, 1]), 400_000
    # Both measure the rate over ten seconds: an idle throttle passes that amount immediately and delays the rest.
    records, batches = batch([bytes(4000)] * 200), 8
    for _ in range(batches):
        data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
        produced = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": [data]}
        clusters.pair.ask("Produce", 9, produced)
    size = batches * len(records)
    assert size > 10 * rate + 2_000_000

    clusters.configure(_TOPIC, name, {_LEADERS: "0:0,0:1", _FOLLOWERS: "0:2"})
    clusters.set_rate(rate)
    _reassign(clusters, 1, (name, 0, [0, 2]))
    _list_reassignments(clusters, (name, [0]))
    clusters.compare_partitions(name)
    took = clusters.seconds_until(lambda peer: not peer.ask(_LIST, 0, {"topics": None, "timeout_ms": 30_000})["topics"])
    kafka, ours = took["kafka"], took["ours"]
    assert min(took.values()) > 1, took
    assert kafka / 3 < ours < kafka * 3, took
    clusters.compare_partitions(name)

    clusters.configure(_TOPIC, name, {_LEADERS: None, _FOLLOWERS: None})
    clusters.set_rate(None)
    asked: Body = {"include_synonyms": True, "include_documentation": False}
    resource = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": [_LEADERS, _FOLLOWERS]}
    clusters.pair.ask("DescribeConfigs", 4, {**asked, "resources": [resource]})
    _reassign(clusters, 1, (name, 0, [0, 1]))
    clusters.until_no_reassignment()
    clusters.compare_partitions(name)


def test_settings_of_one_broker_change_only_through_that_broker(clusters: Clusters) -> None:
    config = {"name": _LEADERS_RATE, "config_operation": 0, "value": "1"}
    for broker in ("1", "-1", "9", "x"):
        resource = {"resource_type": _BROKER, "resource_name": broker, "configs": [config]}
        clusters.pair.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        resource = {**resource, "configs": [{"name": _LEADERS_RATE, "value": "1"}]}
        clusters.pair.ask("AlterConfigs", 2, {"resources": [resource], "validate_only": False})


def test_throttles_and_unknown_settings_of_brokers(clusters: Clusters) -> None:
    names = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "no.such.setting",
        "message.max.bytes",
    )
    asked: Body = {"include_synonyms": True, "include_documentation": False}

    def alter(broker: str, operation: int, value: str | None) -> None:
        configs = [{"name": name, "config_operation": operation, "value": value} for name in names]
        resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
        clusters.pair.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})

    def described(count: int) -> Callable[[Peer], bool]:
        resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": [*names]}

        def condition(peer: Peer) -> bool:
            response = peer.ask("DescribeConfigs", 4, {**asked, "resources": [resource]})
            return sum(len(each["synonyms"]) for each in response["results"][0]["configs"]) == count

        return condition

    def same() -> None:
        for broker in ("0", ""):
            resource = {"resource_type": 4, "resource_name": broker, "configuration_keys": [*names]}
            clusters.pair.ask("DescribeConfigs", 4, {**asked, "resources": [resource]})

    same()
    alter("0", 0, "1000000")
    clusters.until(described(len(names) + 1))
    same()
    alter("", 0, "2000000")
    clusters.until(described(2 * len(names) + 1))
    same()
    alter("0", 1, None)
    clusters.until(described(len(names) + 1))
    same()
    alter("", 1, None)
    clusters.until(described(1))
    same()
