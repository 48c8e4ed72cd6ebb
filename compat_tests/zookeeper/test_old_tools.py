"""Tools of Kafka 1.1, which write requests for the controller into znodes, and Kafka's later tools.

Odradek's brokers act on each znode as Kafka's do.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient
from odradek_peers import KAFKA_1_1, KAFKA_3_9, KAFKA_4_3, JavaTools, ToolFailed

from compat_tests.zookeeper.cluster import WAIT_S, ZooKeeperCluster

pytestmark = pytest.mark.peers

_numbers = itertools.count()


class Tools:
    """The tools of Kafka 1.1 with the cluster's connect string."""

    def __init__(self, cluster: ZooKeeperCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._tools = JavaTools(KAFKA_1_1)

    def run(self, command: str, *arguments: str) -> str:
        return self._tools.run(f"kafka.admin.{command}", "--zookeeper", self._cluster.zookeeper, *arguments)

    def file(self, document: Any) -> str:
        path = self._folder / "input.json"
        path.write_text(json.dumps(document))
        return str(path)

    def create(self, *replicas: Sequence[int], config: Sequence[str] = ()) -> str:
        """Create a topic with these replicas and wait until they are in sync."""
        name = f"tools-{next(_numbers)}"
        assigned = ",".join(":".join(map(str, each)) for each in replicas)
        settings = [word for each in config for word in ("--config", each)]
        output = self.run("TopicCommand", "--create", "--topic", name, "--replica-assignment", assigned, *settings)
        assert f'Created topic "{name}".' in output
        self._cluster.until(lambda: name in self._cluster.admin().list_topics(timeout=WAIT_S).topics)
        self._cluster.until(lambda: self._cluster.in_sync(name) == [set(each) for each in replicas])
        return name

    def reassignment(self, name: str, replicas: dict[int, list[int]]) -> tuple[str, str]:
        wanted = [{"topic": name, "partition": index, "replicas": each} for index, each in replicas.items()]
        return "--reassignment-json-file", self.file({"version": 1, "partitions": wanted})


@pytest.fixture
def tools(cluster: ZooKeeperCluster, tmp_path: Path) -> Tools:
    return Tools(cluster, tmp_path)


def _replicas(cluster: ZooKeeperCluster, name: str) -> list[list[int]]:
    found = cluster.admin().list_topics(name, timeout=WAIT_S).topics[name].partitions
    return [list(found[index].replicas) for index in sorted(found)]


def _config(zookeeper: KazooClient, entity: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zookeeper.get(f"/config/{entity}")[0])["config"]
    return found


def _unpreferred(cluster: ZooKeeperCluster, name: str) -> None:
    """Restart broker 2, after which it leads no partition of the topic."""
    cluster.brokers[2].stop()
    cluster.until(lambda: 2 not in cluster.leaders(name))
    cluster.brokers[2].start()
    cluster.until(lambda: cluster.in_sync(name) == [{1, 2, 3}] * 3)
    assert 2 not in cluster.leaders(name)


def test_topic_command_creates_describes_alters_and_deletes(
    cluster: ZooKeeperCluster, zookeeper: KazooClient, tools: Tools
) -> None:
    name = tools.create([1, 2], [2, 3], config=["min.insync.replicas=2"])
    output = tools.run("TopicCommand", "--describe", "--topic", name)
    assert re.search(r"PartitionCount:2\s+ReplicationFactor:2\s+Configs:min.insync.replicas=2", output)
    assert re.search(r"Partition: 1\s+Leader: 2\s+Replicas: 2,3\s+Isr: 2,3", output)
    cluster.produce(name, [b"before"])

    assigned = ("--partitions", "4", "--replica-assignment", "1:2,2:3,3:1,1:3")
    assert "Adding partitions succeeded!" in tools.run("TopicCommand", "--alter", "--topic", name, *assigned)
    cluster.until(lambda: cluster.in_sync(name) == [{1, 2}, {2, 3}, {3, 1}, {1, 3}])
    cluster.produce(name, [b"%d" % number for number in range(100)])
    cluster.assert_all_stored_once(name)
    with pytest.raises(ToolFailed, match="already exists"):
        tools.run("TopicCommand", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")

    assert f"Topic {name} is marked for deletion." in tools.run("TopicCommand", "--delete", "--topic", name)
    cluster.until(lambda: name not in cluster.admin().list_topics(timeout=WAIT_S).topics)
    cluster.until(lambda: name not in tools.run("TopicCommand", "--list").split())
    assert not zookeeper.exists(f"/config/topics/{name}")
    assert zookeeper.get_children("/admin/delete_topics") == []


def test_the_old_tool_elects_preferred_leaders(cluster: ZooKeeperCluster, zookeeper: KazooClient, tools: Tools) -> None:
    name = tools.create([2, 1, 3], [2, 3, 1], [2, 1, 3])
    _unpreferred(cluster, name)
    wanted = tools.file({"partitions": [{"topic": name, "partition": 0}, {"topic": name, "partition": 2}]})

    output = tools.run("PreferredReplicaLeaderElectionCommand", "--path-to-json-file", wanted)

    assert "Created preferred replica election path" in output
    cluster.until(lambda: cluster.leaders(name)[0] == cluster.leaders(name)[2] == 2)
    assert cluster.leaders(name)[1] != 2
    cluster.until(lambda: not zookeeper.exists("/admin/preferred_replica_election"))
    tools.run("PreferredReplicaLeaderElectionCommand")
    cluster.until(lambda: cluster.leaders(name) == [2] * 3)


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4_3])
def test_the_new_tool_elects_the_leaders_of_a_file(cluster: ZooKeeperCluster, tools: Tools, release: str) -> None:
    name = tools.create([2, 1, 3], [2, 3, 1], [1, 2, 3])
    _unpreferred(cluster, name)
    places = [{"topic": name, "partition": index} for index in (0, 2)]
    command = (
        "kafka-leader-election", "--bootstrap-server", cluster.bootstrap_servers, "--election-type", "preferred",
        "--path-to-json-file", tools.file({"partitions": places}),
    )  # fmt: skip

    output = JavaTools(release).run(*command)

    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in output
    assert f"Valid replica already elected for partitions {name}-2" in output
    cluster.until(lambda: cluster.leaders(name)[0] == 2)
    assert cluster.leaders(name)[1] != 2


def test_a_reassignment_ends_with_the_removal_of_its_throttle(
    cluster: ZooKeeperCluster, zookeeper: KazooClient, tools: Tools
) -> None:
    name = tools.create([1, 2], [2, 3])
    cluster.produce(name, [b"%d" % number for number in range(1000)])
    file = tools.reassignment(name, {0: [3, 2], 1: [1, 2, 3]})

    output = tools.run("ReassignPartitionsCommand", "--execute", *file, "--throttle", "10000000")

    assert "The inter-broker throttle limit was set to 10000000 B/s" in output
    assert "Successfully started reassignment of partitions." in output
    cluster.until(lambda: cluster.in_sync(name) == [{3, 2}, {1, 2, 3}])
    cluster.until(lambda: not zookeeper.exists("/admin/reassign_partitions"))
    assert _config(zookeeper, f"topics/{name}").keys() == {
        "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
    }  # fmt: skip
    output = tools.run("ReassignPartitionsCommand", "--verify", *file)
    assert f"Reassignment of partition {name}-0 completed successfully" in output
    assert f"Reassignment of partition {name}-1 completed successfully" in output
    assert "Throttle was removed." in output
    assert _config(zookeeper, f"topics/{name}") == {}
    assert all(_config(zookeeper, f"brokers/{broker}") == {} for broker in (1, 2, 3))
    assert _replicas(cluster, name) == [[3, 2], [1, 2, 3]]
    cluster.assert_all_stored_once(name)


def test_a_second_reassignment_is_refused_while_one_waits(
    cluster: ZooKeeperCluster, zookeeper: KazooClient, tools: Tools
) -> None:
    name = tools.create([1, 2])
    cluster.produce(name, [b"%d" % number for number in range(1000)])
    file = tools.reassignment(name, {0: [3, 1]})
    # More than a follower can fetch before it is throttled.
    cluster.produce(name, [bytes(4000)] * 2000)
    tools.run("ReassignPartitionsCommand", "--execute", *file, "--throttle", "1")
    cluster.until(lambda: _replicas(cluster, name) == [[3, 1, 2]])
    assert json.loads(zookeeper.get("/admin/reassign_partitions")[0]) == {
        "version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [3, 1]}]
    }  # fmt: skip
    output = tools.run("ReassignPartitionsCommand", "--verify", *file)
    assert f"Reassignment of partition {name}-0 is still in progress" in output
    output = tools.run("ReassignPartitionsCommand", "--execute", *file)
    assert "There is an existing assignment running." in output

    # A second --execute changes only the rate.
    tools.run("ReassignPartitionsCommand", "--execute", *file, "--throttle", "1000000000")
    cluster.until(lambda: cluster.in_sync(name) == [{1, 3}])
    cluster.until(lambda: not zookeeper.exists("/admin/reassign_partitions"))
    assert "Throttle was removed." in tools.run("ReassignPartitionsCommand", "--verify", *file)


def test_config_znodes_take_effect_without_a_restart(
    cluster: ZooKeeperCluster, zookeeper: KazooClient, tools: Tools
) -> None:
    name = tools.create([1], [2], [3])

    def entity(kind: str, entity_name: str, *arguments: str) -> str:
        return tools.run("ConfigCommand", "--entity-type", kind, "--entity-name", entity_name, *arguments)

    assert "Completed Updating config" in entity("topics", name, "--alter", "--add-config", "max.message.bytes=100000")
    assert "max.message.bytes=100000" in entity("topics", name, "--describe")
    for partition in range(3):
        cluster.until(lambda partition=partition: _refused(cluster, name, partition, 200_000))  # type: ignore[misc]
    assert "Updated config" in tools.run(
        "TopicCommand", "--alter", "--topic", name, "--delete-config", "max.message.bytes"
    )
    for partition in range(3):
        cluster.until(lambda partition=partition: not _refused(cluster, name, partition, 200_000))  # type: ignore[misc]

    rate = "leader.replication.throttled.rate"
    entity("brokers", "2", "--alter", "--add-config", f"{rate}=12345")
    assert _config(zookeeper, "brokers/2")[rate] == "12345"
    described = ("kafka-configs", "--bootstrap-server", cluster.bootstrap_servers, "--entity-type", "brokers",
                 "--entity-name", "2", "--describe")  # fmt: skip
    cluster.until(lambda: f"{rate}=12345" in JavaTools(KAFKA_3_9).run(*described))
    entity("brokers", "2", "--alter", "--delete-config", rate)
    cluster.until(lambda: rate not in JavaTools(KAFKA_3_9).run(*described))


def _refused(cluster: ZooKeeperCluster, topic: str, partition: int, size: int) -> bool:
    """Return whether the broker refuses a record of this size."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    errors: list[Any] = []
    producer.produce(topic, bytes(size), partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors[0] is not None and errors[0].name() == "MSG_SIZE_TOO_LARGE"
