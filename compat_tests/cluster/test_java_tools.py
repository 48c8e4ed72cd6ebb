"""Kafka's tools for replicas, leaders and brokers, of both releases, print the same for Odradek as for Kafka."""

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from odradek_peers import JavaTools, ToolFailed

from compat_tests.cluster.clusters import BrokerCluster

_SECONDS = 30.0
_PAUSE_S = 0.05


class At:
    """The tools of a release with a cluster."""

    def __init__(self, tools: JavaTools, cluster: BrokerCluster, folder: Path) -> None:
        self.tools = tools
        self.cluster = cluster
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def run(self, tool: str, *arguments: str) -> str:
        return self.tools.run(tool, "--bootstrap-server", self.cluster.bootstrap_servers, *arguments)

    def file(self, document: Any) -> str:
        """Write a JSON file and return its path."""
        path = self._folder / "input.json"
        path.write_text(json.dumps(document))
        return str(path)

    def create(self, name: str, *replicas: Sequence[int], config: str = "") -> str:
        """Create a topic with these replicas and wait until they are in sync; its name contains the release."""
        name = f"{name}-{self.tools.version}"
        assigned = ",".join(":".join(map(str, each)) for each in replicas)
        more = ("--config", config) if config else ()
        assert f"Created topic {name}." in self.run(
            "kafka-topics", "--create", "--topic", name, "--replica-assignment", assigned, *more
        )
        self.until(lambda: len(self.places(name)) == len(replicas))
        self.until_in_sync(name)
        return name

    def places(self, name: str) -> list[tuple[int, list[int], list[int]]]:
        """Return leader, replicas and ISR of each partition."""
        found = self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions
        return [(each.leader, list(each.replicas), sorted(each.isrs)) for _, each in sorted(found.items())]

    def replicas(self, name: str) -> list[list[int]]:
        return [replicas for _, replicas, _ in self.places(name)]

    def leaders(self, name: str) -> list[int]:
        return [leader for leader, _, _ in self.places(name)]

    def until_in_sync(self, name: str) -> None:
        self.until(lambda: all(isr == sorted(replicas) and leader >= 0 for leader, replicas, isr in self.places(name)))

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(_PAUSE_S)

    def reassignment(self, name: str, replicas: dict[int, list[int]]) -> str:
        """Write a file for kafka-reassign-partitions and return its path."""
        partitions = [{"topic": name, "partition": index, "replicas": each} for index, each in replicas.items()]
        return self.file({"version": 1, "partitions": partitions})

    def reassigned(self, name: str, replicas: dict[int, list[int]]) -> None:
        """Execute a reassignment and wait until the tool reports its completion."""
        file = ("--reassignment-json-file", self.reassignment(name, replicas))
        self.run("kafka-reassign-partitions", *file, "--execute")
        self.until(lambda: "in progress" not in self.run("kafka-reassign-partitions", *file, "--verify"))

    def fill(self, name: str, partitions: int, count: int = 100, *, size: int = 3) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "acks": "all"})
        for number in range(count):
            producer.produce(name, b"%0*d" % (size, number), partition=number % partitions)
        assert producer.flush(_SECONDS) == 0


@pytest.fixture
def at(tools: JavaTools, cluster: BrokerCluster, tmp_path: Path) -> At:
    """The tools with the cluster."""
    return At(tools, cluster, tmp_path)


def _described(text: str) -> list[list[str]]:
    """Return partition, leader, replicas and ISR from the output of kafka-topics --describe."""
    return [
        re.findall(r"(?:Partition|Leader|Replicas|Isr): (\S*)", line)
        for line in text.splitlines()
        if line.startswith("\t")
    ]


def test_kafka_topics_applies_a_replica_assignment(at: At) -> None:
    name = at.create("placed", [0, 1], [1, 2], [2, 0])
    at.run("kafka-topics", "--alter", "--topic", name, "--partitions", "4",
           "--replica-assignment", "0:1,1:2,2:0,2:1")  # fmt: skip
    at.until_in_sync(name)

    output = at.run("kafka-topics", "--describe", "--topic", name)

    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 2", output)
    assert _described(output) == [
        ["0", "0", "0,1", "0,1"],
        ["1", "1", "1,2", "1,2"],
        ["2", "2", "2,0", "2,0"],
        ["3", "2", "2,1", "2,1"],
    ]
    for arguments, complaint in (
        (["--replica-assignment", "0:9"], "includes broker 9, but no such broker is registered"),
        (["--partitions", "1", "--replication-factor", "4"], r"Unable to replicate the partition 4 time\(s\)"),
    ):
        with pytest.raises(ToolFailed, match=complaint):
            at.run("kafka-topics", "--create", "--topic", f"refused-{at.tools.version}", *arguments)


def test_kafka_topics_spreads_replicas_over_racks(at: At) -> None:
    name = f"spread-{at.tools.version}"
    at.run("kafka-topics", "--create", "--topic", name, "--partitions", "6", "--replication-factor", "2")

    at.until_in_sync(name)

    replicas = at.replicas(name)
    assert all(len(set(each)) == 2 for each in replicas)
    assert sorted(each[0] for each in replicas) == [0, 0, 1, 1, 2, 2]


def test_kafka_topics_lists_under_replicated_partitions(at: At) -> None:
    name = at.create("lacking", [0, 1, 2], [1, 0, 2], [0, 1, 2], config="min.insync.replicas=2")
    alone = at.create("alone", [2])
    asked = {
        "under": "--under-replicated-partitions",
        "at": "--at-min-isr-partitions",
        "below": "--under-min-isr-partitions",
        "gone": "--unavailable-partitions",
    }

    def found(topic: str) -> dict[str, list[str]]:
        output = {
            kind: at.run("kafka-topics", "--describe", option, "--topic", topic) for kind, option in asked.items()
        }
        return {kind: [line[0] for line in _described(text)] for kind, text in output.items()}

    nothing: dict[str, list[str]] = {kind: [] for kind in asked}
    assert found(name) == nothing
    at.cluster.stop(2)
    try:
        at.until(lambda: all(isr == [0, 1] for _, _, isr in at.places(name)))
        assert found(name) == {**nothing, "under": ["0", "1", "2"], "at": ["0", "1", "2"]}
        assert found(alone) == {**nothing, "under": ["0"], "gone": ["0"], "below": ["0"]}
        at.cluster.stop(1)
        at.until(lambda: all(isr == [0] for _, _, isr in at.places(name)))
        assert found(name) == {**nothing, "under": ["0", "1", "2"], "below": ["0", "1", "2"]}
    finally:
        at.cluster.start(2)
        at.cluster.start(1)
    at.until_in_sync(name)
    at.until_in_sync(alone)


def test_kafka_reassign_partitions_with_a_throttle(at: At) -> None:
    name = at.create("moved", [0, 1], [1, 2], [2, 0])
    at.fill(name, 3)

    topics = at.file({"topics": [{"topic": name}], "version": 1})
    output = at.run("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics,
                  "--broker-list", "0,1")  # fmt: skip
    current, proposed = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[0, 1], [1, 2], [2, 0]]
    assert all(set(each["replicas"]) == {0, 1} for each in proposed["partitions"])
    assert all(each["log_dirs"] == ["any", "any"] for each in proposed["partitions"])

    file = ("--reassignment-json-file", at.reassignment(name, {0: [2, 1], 1: [0, 1, 2]}))
    output = at.run("kafka-reassign-partitions", "--execute", *file, "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in output
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in output
    described = at.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", name)
    assert "follower.replication.throttled.replicas=0:2,1:0" in described
    assert "leader.replication.throttled.replicas=0:0,0:1,1:1,1:2" in described
    for broker in ("0", "1", "2"):
        described = at.run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", broker)
        assert "leader.replication.throttled.rate=10000000" in described
        assert "follower.replication.throttled.rate=10000000" in described

    at.until(lambda: "No partition reassignments found." in at.run("kafka-reassign-partitions", "--list"))
    output = at.run("kafka-reassign-partitions", "--verify", *file)
    assert f"Reassignment of partition {name}-0 is completed." in output
    assert f"Reassignment of partition {name}-1 is completed." in output
    assert f"Clearing topic-level throttles on topic {name}" in output
    assert at.replicas(name) == [[2, 1], [0, 1, 2], [2, 0]]
    for kind, entity in (("topics", name), ("brokers", "0")):
        assert "throttled" not in at.run("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", entity)


def test_kafka_reassign_partitions_refuses_unknown_partitions(at: At) -> None:
    name = at.create("refused-move", [0, 1])
    for replicas, complaint in (({0: [9]}, "Unknown broker id 9"), ({7: [1]}, f"Unable to find partition: {name}-7")):
        with pytest.raises(ToolFailed, match=complaint):
            at.run(
                "kafka-reassign-partitions", "--execute", "--reassignment-json-file", at.reassignment(name, replicas)
            )


def test_kafka_reassign_partitions_cancels_a_reassignment(at: At) -> None:
    name = at.create("waiting", [0, 1], [1, 0])
    # More than a follower can fetch before it is throttled.
    at.fill(name, 2, 2000, size=4000)
    file = ("--reassignment-json-file", at.reassignment(name, {0: [1, 2]}))
    at.run("kafka-reassign-partitions", "--execute", *file, "--throttle", "1")
    in_progress = ("--reassignment-json-file", at.reassignment(name, {0: [1, 2], 1: [1, 0]}))

    listed = at.run("kafka-reassign-partitions", "--list")
    assert f"{name}-0: replicas: 1,2,0. adding: 2. removing: 0." in listed
    output = at.run("kafka-reassign-partitions", "--verify", *in_progress)
    assert f"Reassignment of partition {name}-0 is still in progress." in output
    assert f"Reassignment of partition {name}-1 is completed." in output

    output = at.run("kafka-reassign-partitions", "--cancel", *file)
    assert f"Successfully cancelled partition reassignment for: {name}-0" in output
    assert "No partition reassignments found." in at.run("kafka-reassign-partitions", "--list")
    # A cancellation does not keep the order of the replicas.
    assert at.replicas(name) == [[1, 0], [1, 0]]


def test_the_replication_factor_grows_and_shrinks(at: At) -> None:
    name = at.create("resized", [0], [1])
    at.fill(name, 2)

    at.reassigned(name, {0: [0, 1, 2], 1: [1, 2, 0]})
    at.until_in_sync(name)
    assert re.search(r"ReplicationFactor: 3\s", at.run("kafka-topics", "--describe", "--topic", name))
    assert at.replicas(name) == [[0, 1, 2], [1, 2, 0]]

    at.reassigned(name, {0: [2], 1: [0]})
    assert at.places(name) == [(2, [2], [2]), (0, [0], [0])]
    assert at.run("kafka-get-offsets", "--topic", name).splitlines() == [f"{name}:0:50", f"{name}:1:50"]


def test_a_broker_is_drained(at: At) -> None:
    name = at.create("drained", [0, 2], [2, 1], [1, 2])
    at.fill(name, 3)
    topics = at.file({"topics": [{"topic": name}], "version": 1})
    output = at.run("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics,
                  "--broker-list", "0,1")  # fmt: skip
    proposed = json.loads(output.splitlines()[-1])
    at.reassigned(name, {each["partition"]: each["replicas"] for each in proposed["partitions"]})

    assert all(set(replicas) == {0, 1} for replicas in at.replicas(name))
    at.until(lambda: _sizes(at.run("kafka-log-dirs", "--describe", "--broker-list", "2", "--topic-list", name)) == {})


def _sizes(output: str) -> dict[tuple[int, str], int]:
    """Return the bytes by broker and partition from the output of kafka-log-dirs."""
    response = json.loads(output.splitlines()[-1])
    return {
        (broker["broker"], partition["partition"]): partition["size"]
        for broker in response["brokers"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    }


def test_kafka_log_dirs_lists_every_replica(at: At) -> None:
    name = at.create("in-folders", [0, 1], [1, 2])
    at.fill(name, 2)

    sizes = _sizes(at.run("kafka-log-dirs", "--describe", "--topic-list", name))

    assert set(sizes) == {(0, f"{name}-0"), (1, f"{name}-0"), (1, f"{name}-1"), (2, f"{name}-1")}
    assert sizes[0, f"{name}-0"] == sizes[1, f"{name}-0"] > 0
    only = _sizes(at.run("kafka-log-dirs", "--describe", "--broker-list", "2", "--topic-list", name))
    assert set(only) == {(2, f"{name}-1")}


def test_kafka_leader_election_elects_preferred_leaders(at: At) -> None:
    name = at.create("led", [1, 0], [1, 0], [1, 0], [0, 1])
    at.cluster.stop(1)
    at.until(lambda: at.leaders(name) == [0] * 4)
    preferred = ("--election-type", "preferred")
    with pytest.raises(ToolFailed, match=r"PreferredLeaderNotAvailableException: The preferred leader was not availab"):
        at.run("kafka-leader-election", *preferred, "--topic", name, "--partition", "0")
    at.cluster.start(1)
    at.until_in_sync(name)

    output = at.run("kafka-leader-election", *preferred, "--topic", name, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in output
    at.until(lambda: at.leaders(name) == [1, 0, 0, 0])
    output = at.run("kafka-leader-election", *preferred, "--topic", name, "--partition", "0")
    assert f"Valid replica already elected for partitions {name}-0" in output

    file = at.file({"partitions": [{"topic": name, "partition": 1}, {"topic": name, "partition": 3}]})
    output = at.run("kafka-leader-election", *preferred, "--path-to-json-file", file)
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-1" in output
    assert f"Valid replica already elected for partitions {name}-3" in output
    at.run("kafka-leader-election", *preferred, "--all-topic-partitions")
    at.until(lambda: at.leaders(name) == [1, 1, 1, 0])

    with pytest.raises(ToolFailed, match=f"No such partition as {name}-9"):
        at.run("kafka-leader-election", *preferred, "--topic", name, "--partition", "9")


def test_kafka_leader_election_elects_an_unclean_leader(at: At) -> None:
    name = at.create("unclean", [1, 2])
    at.cluster.stop(2)
    at.until(lambda: at.places(name) == [(1, [1, 2], [1])])
    at.fill(name, 1, 10)
    at.cluster.stop(1)
    at.cluster.start(2)
    unclean = ("--election-type", "unclean", "--topic", name, "--partition", "0")
    try:
        at.until(lambda: at.leaders(name) == [-1])
        assert f"(UNCLEAN) for partitions {name}-0" in at.run("kafka-leader-election", *unclean)
        at.until(lambda: at.leaders(name) == [2])
        assert f"Valid replica already elected for partitions {name}-0" in at.run("kafka-leader-election", *unclean)
    finally:
        at.cluster.start(1)
    at.until_in_sync(name)
    assert at.run("kafka-get-offsets", "--topic", name).splitlines() == [f"{name}:0:0"]


def test_kafka_replica_verification_finds_no_lag(at: At) -> None:
    name = at.create("same", [0, 1, 2], [1, 2, 0])
    at.fill(name, 2)
    arguments = ("--broker-list", at.cluster.bootstrap_servers, "--topics-include", name, "--report-interval-ms", "500")
    with at.tools.start("kafka-replica-verification", *arguments) as running:
        assert "verification process is started" in running.next_line()
        assert re.search(rf"max lag is 0 for partition {name}-\d at offset 50 among 2 partitions", running.next_line())
        assert "max lag is 0 for" in running.next_line()


def test_kafka_get_offsets_lists_the_offsets_of_each_leader(at: At) -> None:
    name = at.create("ends", [0, 1], [1, 2], [2, 0])
    at.fill(name, 3, 10)

    assert at.run("kafka-get-offsets", "--topic", name).splitlines() == [f"{name}:0:4", f"{name}:1:3", f"{name}:2:3"]
    assert at.run("kafka-get-offsets", "--topic-partitions", f"{name}:1-2", "--time", "earliest").splitlines() == [
        f"{name}:1:0"
    ]


def test_kafka_configs_separates_a_broker_from_the_cluster_default(at: At) -> None:
    def brokers(*arguments: str) -> str:
        return at.run("kafka-configs", "--entity-type", "brokers", *arguments)

    one, every = ("--entity-name", "1"), ("--entity-default",)
    with pytest.raises(ToolFailed, match=r"Cannot update these configs dynamically: .*log\.dirs"):
        brokers(*one, "--alter", "--add-config", "log.dirs=/elsewhere")
    with pytest.raises(ToolFailed, match=r"Invalid value -7 for configuration log\.cleaner\.threads"):
        brokers(*one, "--alter", "--add-config", "log.cleaner.threads=-7")

    brokers(*every, "--alter", "--add-config", "message.max.bytes=100000,log.retention.ms=86400000")
    brokers(*one, "--alter", "--add-config", "log.retention.ms=1000000")
    output = brokers(*every, "--describe")
    assert "log.retention.ms=86400000 sensitive=false" in output
    assert "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=100000}" in output
    at.until(lambda: "log.retention.ms=1000000" in brokers(*one, "--describe"))
    assert (
        "log.retention.ms=1000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=1000000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=86400000, DEFAULT_CONFIG:log.retention.hours=168}"
    ) in brokers(*one, "--describe")
    assert "log.retention.ms" not in brokers("--entity-name", "2", "--describe")
    with_defaults = brokers("--entity-name", "2", "--describe", "--all")
    assert (
        "message.max.bytes=100000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=100000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}"
    ) in with_defaults

    # The dynamic limit applies on every running broker.
    name = at.create("limited", [0], [1], [2])
    producer = Producer({"bootstrap.servers": at.cluster.bootstrap_servers, "message.max.bytes": 10_000_000})
    for partition in range(3):
        assert _refused(producer, name, partition, 200_000), partition
    brokers(*every, "--alter", "--delete-config", "message.max.bytes,log.retention.ms")
    brokers(*one, "--alter", "--delete-config", "log.retention.ms")
    for partition in range(3):
        at.until(lambda partition=partition: not _refused(producer, name, partition, 200_000))  # type: ignore[misc]


def _refused(producer: Producer, topic: str, partition: int, size: int) -> bool:
    """Return whether the broker refuses a record of this size."""
    errors: list[Any] = []
    producer.produce(topic, bytes(size), partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(_SECONDS) == 0
    (error,) = errors
    if error is not None and error.name() != "MSG_SIZE_TOO_LARGE":
        raise KafkaException(error)
    return error is not None


def test_kafka_cluster_and_kafka_metadata_quorum_describe_the_cluster(at: At) -> None:
    servers = ("--bootstrap-server", at.cluster.bootstrap_servers)
    assert re.search(r"Cluster ID: \S{22}", at.tools.run("kafka-cluster", "cluster-id", *servers))
    with pytest.raises(ToolFailed, match="BrokerIdNotRegisteredException"):
        at.tools.run("kafka-cluster", "unregister", *servers, "--id", "17")
    if at.tools.version.startswith("4."):
        listed = at.tools.run("kafka-cluster", "list-endpoints", *servers).splitlines()[1:]
        assert [(line.split()[0], *line.split()[3:]) for line in listed] == [
            ("0", "a", "unfenced", "broker"),
            ("1", "b", "unfenced", "broker"),
            ("2", "c", "unfenced", "broker"),
        ]

    status = at.run("kafka-metadata-quorum", "describe", "--status")
    (leader,) = re.findall(r"LeaderId:\s+(\d+)\n", status)
    assert re.search(r"MaxFollowerLag:\s+\d+", status)
    replication = [line.split() for line in at.run("kafka-metadata-quorum", "describe", "--replication").splitlines()]
    assert [line[0] for line in replication if line[-1] == "Leader"] == [leader]
