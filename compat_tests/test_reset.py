"""Clients that stay connected while `Cluster.reset()` empties the broker."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools

from compat_tests.clients.transactional import TRANSACTIONAL, TransactionalClient
from compat_tests.isolation import COMMITTED, values
from odradek import Cluster


@pytest.fixture
def cluster(broker_name: str) -> Iterator[Cluster]:
    if broker_name != "odradek":
        pytest.skip("only Odradek can be reset")
    with Cluster(topics={"t": 1}) as made:
        yield made


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_a_java_producer_and_consumer_work_after_a_reset(cluster: Cluster, version: str) -> None:
    tools = JavaTools(version)
    at = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t")
    with (
        tools.start("kafka-console-producer", *at) as producer,
        tools.start("kafka-console-consumer", *at, "--group", "g", "--from-beginning") as consumer,
    ):
        producer.write("before\n")
        assert consumer.next_line() == "before"
        cluster.reset()
        producer.write("after\n")
        assert consumer.next_line() == "after"


def test_a_connected_producer_is_acknowledged_after_a_reset(cluster: Cluster) -> None:
    with JavaTools(KAFKA_4_3).start(
        "kafka-verifiable-producer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--throughput", "200"),
    ) as producer:
        _next(producer.next_line, "producer_send_success")
        cluster.reset()
        # Records that are sent from now on begin a new log: offsets start at 0 again.
        while _next(producer.next_line, "producer_send_success")["offset"] > 100:
            pass


@pytest.mark.parametrize("transactional_client", TRANSACTIONAL)
def test_reset_drops_the_open_transaction_of_a_producer(
    cluster: Cluster, transactional_client: TransactionalClient
) -> None:
    with transactional_client.open(cluster.bootstrap_servers, "tx") as producer:
        producer.begin()
        producer.send("t", b"before")
        cluster.reset()
        with pytest.raises(Exception, match=r"INVALID_PRODUCER_ID_MAPPING|Unexpected error"):
            producer.commit()
    with transactional_client.open(cluster.bootstrap_servers, "tx") as successor:
        successor.begin()
        successor.send("t", b"after")
        successor.commit()
    assert values(cluster.bootstrap_servers, "t", COMMITTED) == [b"after"]


def _next(next_line: Callable[[], str], name: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(next_line())
        if event["name"] == name:
            return event
