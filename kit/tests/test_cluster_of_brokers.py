"""`Cluster(brokers=3)`: several brokers on a thread and in a child process, as an unmodified client sees them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata

from odradek import AlreadyRunningError, Cluster, NotRunningError

WAIT_S = 30
ALL = [0, 1, 2]


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=3, process=request.param) as made:
        made.create_topic("orders", 3, replicas=3)
        yield made


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def brokers(cluster: Cluster) -> dict[int, str]:
    """The brokers in the metadata: id to address."""
    return {each.id: f"{each.host}:{each.port}" for each in admin(cluster).list_topics(timeout=WAIT_S).brokers.values()}


def partitions(cluster: Cluster, topic: str) -> dict[int, PartitionMetadata]:
    return dict(admin(cluster).list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no client request waits for."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def wait_until_in_sync(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    wait_until(lambda: all(sorted(each.isrs) == replicas for each in partitions(cluster, topic).values()))


def produce(cluster: Cluster, topic: str, *values: str, partition: int = 0, **config: object) -> None:
    """Produce values; all in-sync replicas must acknowledge each."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **config})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failed == [None] * len(values)


def read(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [message.value().decode() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


def test_all_brokers_are_in_bootstrap_servers_and_in_the_metadata(cluster: Cluster) -> None:
    addresses = cluster.bootstrap_servers.split(",")
    assert cluster.brokers == ALL
    assert brokers(cluster) == dict(enumerate(addresses))
    assert len(set(addresses)) == 3
    for address in addresses:
        alone = AdminClient({"bootstrap.servers": address})
        assert sorted(alone.list_topics(timeout=WAIT_S).brokers) == ALL


def test_partitions_have_their_leaders_and_replicas_on_all_brokers(cluster: Cluster) -> None:
    found = partitions(cluster, "orders").values()
    assert sorted(each.leader for each in found) == ALL
    assert [sorted(each.replicas) for each in found] == [ALL] * 3
    wait_until_in_sync(cluster, "orders", ALL)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_other_replicas_lead_while_a_broker_is_down_and_it_rejoins_the_isr(cluster: Cluster, how: str) -> None:
    servers = cluster.bootstrap_servers
    for partition in range(3):
        produce(cluster, "orders", "before", partition=partition)
    getattr(cluster, how)(1)
    assert cluster.brokers == [0, 2]
    assert cluster.bootstrap_servers == servers
    wait_until(lambda: all(each.leader in (0, 2) for each in partitions(cluster, "orders").values()))
    for partition in range(3):
        produce(cluster, "orders", "while it is gone", partition=partition)
        assert read(cluster, "orders", 2, partition) == ["before", "while it is gone"]
    cluster.start(1)
    assert cluster.brokers == ALL
    wait_until_in_sync(cluster, "orders", ALL)
    assert brokers(cluster) == dict(enumerate(servers.split(",")))


def test_a_restarted_broker_fetches_the_records_that_it_missed(cluster: Cluster) -> None:
    cluster.create_topic("alone", 1, replicas=3)
    cluster.kill(2)
    produce(cluster, "alone", "missed")
    cluster.start(2)
    wait_until_in_sync(cluster, "alone", ALL)
    cluster.stop(0)
    cluster.stop(1)
    assert read(cluster, "alone", 1) == ["missed"]


def test_a_broker_can_be_added_while_clients_run(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    assert cluster.add_broker() == 3
    assert cluster.brokers == [0, 1, 2, 3]
    assert brokers(cluster) == dict(enumerate(cluster.bootstrap_servers.split(",")))
    cluster.create_topic("wide", 4, replicas=1)
    assert sorted(each.leader for each in partitions(cluster, "wide").values()) == [0, 1, 2, 3]
    delivered: list[object] = []
    for partition in range(4):
        producer.produce("wide", "x", partition=partition, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(WAIT_S) == 0
    assert delivered == [None] * 4
    cluster.kill(3)
    cluster.start(3)
    assert [read(cluster, "wide", 1, partition) for partition in range(4)] == [["x"]] * 4


def test_a_stopped_or_killed_cluster_restarts_with_data_and_addresses(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    produce(cluster, "orders", "a")
    cluster.stop()
    assert cluster.brokers == []
    cluster.start()
    produce(cluster, "orders", "b")
    cluster.kill()
    cluster.start()
    assert (cluster.bootstrap_servers, cluster.brokers) == (servers, ALL)
    assert read(cluster, "orders", 2) == ["a", "b"]


def test_a_reset_of_three_brokers_keeps_their_addresses() -> None:
    with Cluster(brokers=3, topics={"kept": 3}) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("gone", 3, replicas=3)
        produce(cluster, "kept", "gone, too")
        cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", broker=1)
        cluster.reset()
        assert (cluster.bootstrap_servers, cluster.brokers) == (servers, ALL)
        assert sorted(admin(cluster).list_topics(timeout=WAIT_S).topics) == ["kept"]
        for partition in range(3):
            produce(cluster, "kept", "after", partition=partition)
            assert read(cluster, "kept", 1, partition) == ["after"]


def test_a_reset_deletes_the_data_of_a_broker_that_is_down(cluster: Cluster) -> None:
    produce(cluster, "orders", "gone")
    cluster.kill(1)
    cluster.reset()
    cluster.start(1)
    cluster.create_topic("orders", 3, replicas=3)
    wait_until_in_sync(cluster, "orders", ALL)
    for partition in range(3):
        produce(cluster, "orders", "after", partition=partition)
        assert read(cluster, "orders", 1, partition) == ["after"]


def test_a_fault_of_one_broker_spares_the_others_and_survives_a_restart(cluster: Cluster) -> None:
    leaders = {each.leader: partition for partition, each in partitions(cluster, "orders").items()}
    cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", broker=1)

    def error_at(broker: int) -> str | None:
        found: list[str | None] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1})
        producer.produce(
            "orders", "x", partition=leaders[broker], on_delivery=lambda error, _: found.append(error and error.name())
        )
        assert producer.flush(WAIT_S) == 0
        return found[0]

    assert [error_at(broker) for broker in ALL] == [None, "TOPIC_AUTHORIZATION_FAILED", None]
    cluster.stop()
    cluster.start()
    leaders = {each.leader: partition for partition, each in partitions(cluster, "orders").items()}
    assert [error_at(broker) for broker in ALL if broker in leaders] == [
        "TOPIC_AUTHORIZATION_FAILED" if broker == 1 else None for broker in ALL if broker in leaders
    ]
    cluster.faults.clear()
    assert [error_at(broker) for broker in leaders] == [None] * len(leaders)


def test_a_group_continues_when_its_coordinator_is_killed() -> None:
    with Cluster(brokers=3, config={"offsets.topic.num.partitions": 1}) as cluster:
        cluster.create_topic("orders", 1, replicas=3)
        produce(cluster, "orders", "a", "b")
        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}

        def next_one() -> str:
            consumer = Consumer(config)
            consumer.subscribe(["orders"])
            try:
                (message,) = consumer.consume(1, WAIT_S)
                consumer.commit(message, asynchronous=False)
                return str(message.value().decode())
            finally:
                consumer.close()

        assert next_one() == "a"
        wait_until_in_sync(cluster, "__consumer_offsets", ALL)
        cluster.kill(partitions(cluster, "__consumer_offsets")[0].leader)
        assert next_one() == "b"


def test_racks_are_in_the_metadata_and_spread_replicas() -> None:
    with Cluster(brokers=4, racks=["a", "a", "b", "b"]) as cluster:
        cluster.create_topic("spread", 8, replicas=2)
        client = admin(cluster)
        rack = {node.id: node.rack for node in client.describe_cluster().result(WAIT_S).nodes}
        assert rack == {0: "a", 1: "a", 2: "b", 3: "b"}
        spread = [{rack[broker] for broker in each.replicas} for each in partitions(cluster, "spread").values()]
        assert spread == [{"a", "b"}] * 8
        assert cluster.add_broker(rack="c") == 4
        nodes = client.describe_cluster().result(WAIT_S).nodes
        assert {node.rack for node in nodes if node.id == 4} == {"c"}


def test_each_broker_keeps_its_data_for_the_next_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Cluster(brokers=3, data=data, topics={"orders": 3}) as first:
        for partition in range(3):
            produce(first, "orders", str(partition), partition=partition)
        leaders = {number: each.leader for number, each in partitions(first, "orders").items()}
    assert sorted(path.name for path in data.iterdir()) == ["broker-0", "broker-1", "broker-2", "controller"]
    with Cluster(brokers=3, data=data, topics={"orders": 3}) as second:
        assert {number: each.leader for number, each in partitions(second, "orders").items()} == leaders
        assert [read(second, "orders", 1, partition) for partition in range(3)] == [["0"], ["1"], ["2"]]


def test_the_data_of_another_number_of_brokers_is_refused(tmp_path: Path) -> None:
    with Cluster(data=tmp_path / "one", topics=["orders"]), Cluster(brokers=2, data=tmp_path / "two"):
        pass
    with pytest.raises(ValueError, match="holds the data of a single broker"):
        Cluster(brokers=3, data=tmp_path / "one").start()
    with pytest.raises(ValueError, match="holds the data of several brokers"):
        Cluster(data=tmp_path / "two").start()
    with Cluster(data=tmp_path / "one") as again:
        assert sorted(admin(again).list_topics(timeout=WAIT_S).topics) == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": 0}, "brokers must be at least 1, got 0"),
        ({"brokers": 3, "racks": ["a", "b"]}, "racks must name a rack for each of 3 brokers, got 2"),
        ({"brokers": 3, "port": 9092}, "port must be 0 for several brokers"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs"])
def test_settings_that_differ_between_brokers_are_refused(name: str) -> None:
    value = "PLAINTEXT://127.0.0.1:9092" if name.endswith("listeners") else "7"
    with pytest.raises(ValueError, match=name):
        Cluster(brokers=3, config={name: value})


def test_unknown_broker_ids_are_refused(cluster: Cluster) -> None:
    for call in (cluster.stop, cluster.kill, cluster.start):
        for broker in (-1, 3):
            with pytest.raises(ValueError, match=rf"broker must be one of 0 to 2, got {broker}"):
                call(broker)
    with pytest.raises(AlreadyRunningError, match="broker 1 is already running"):
        cluster.start(1)
    cluster.kill(1)
    for call in (cluster.stop, cluster.kill):
        with pytest.raises(NotRunningError, match="broker 1 is not running"):
            call(1)
    cluster.start(1)
    assert sorted(brokers(cluster)) == ALL


def test_brokers_of_a_stopped_cluster_cannot_be_started_or_stopped() -> None:
    cluster = Cluster(brokers=3)
    with pytest.raises(NotRunningError):
        cluster.start(1)
    with pytest.raises(NotRunningError):
        cluster.stop(1)
    with pytest.raises(NotRunningError):
        cluster.add_broker()
    with cluster:
        assert cluster.brokers == ALL
    with pytest.raises(NotRunningError):
        cluster.kill(1)


def test_a_cluster_of_one_broker_takes_no_broker_id() -> None:
    with Cluster(topics=["orders"]) as cluster:
        with pytest.raises(ValueError, match="create it with brokers=2"):
            cluster.add_broker()
        for call in (cluster.stop, cluster.kill, cluster.start):
            with pytest.raises(ValueError, match="takes no broker id"):
                call(0)
        produce(cluster, "orders", "a")


def test_up_prints_all_addresses_when_all_brokers_respond(tmp_path: Path) -> None:
    up = ["up", "--brokers", "3", "--port", "0", "--data", str(tmp_path / "data"), "--topic", "orders:3"]
    for _ in range(2):
        broker = subprocess.Popen(
            [sys.executable, "-c", "from odradek.cli import main; main()", *up],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert broker.stdout is not None
        try:
            addresses = broker.stdout.readline().strip().split(",")
            assert len(set(addresses)) == 3
            for address in addresses:
                found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S)
                assert sorted(found.brokers) == ALL
                assert sorted(each.leader for each in found.topics["orders"].partitions.values()) == ALL
        finally:
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(WAIT_S) == 0


def test_up_refuses_settings_of_one_broker_for_several() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from odradek.cli import main; main()", "up", "--brokers", "2", "-o", "node.id=7"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert ended.returncode == 2
    assert "--brokers cannot be combined with node.id: each broker has its own" in ended.stderr
