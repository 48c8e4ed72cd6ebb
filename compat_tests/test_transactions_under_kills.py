"""Transactions over two topics while coordinators and leaders are killed and stopped: both topics have the same
records, each committed one once and no aborted one."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from confluent_kafka import KafkaException, Producer

from compat_tests.isolation import COMMITTED, values
from odradek import Cluster

PRODUCERS = 3
PARTITIONS = 2
TOPICS = ("a", "b")
SECONDS = 10
TIMEOUT_S = 60.0


@pytest.fixture
def cluster(broker_name: str) -> Iterator[Cluster]:
    if broker_name != "odradek":
        pytest.skip("needs a cluster of Odradek's brokers")
    settings = {"transaction.state.log.min.isr": 2, "transaction.state.log.num.partitions": 5}
    with Cluster(brokers=3, config=settings) as made:
        for topic in TOPICS:
            made.create_topic(topic, PARTITIONS, replicas=3, config={"min.insync.replicas": 2})
        yield made


class TransactionalProducer:
    """A producer that runs one transaction after another, and the names of its transactions by outcome."""

    def __init__(self, servers: str, number: int) -> None:
        self._servers = servers
        self._id = f"producer-{number}"
        self._rng = random.Random(number)
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """Transactions of unknown outcome: the producer failed before the response."""

    def run(self, stopping: Event) -> None:
        producer, number = self.open_producer(), 0
        while not stopping.is_set():
            number += 1
            name = f"{self._id}-{number}".encode()
            try:
                self._run_transaction(producer, name)
            except KafkaException as failure:
                if failure.args[0].txn_requires_abort():
                    producer.abort_transaction(TIMEOUT_S)
                    self.aborted.add(name)
                else:
                    self.unknown.add(name)
                    producer = self.open_producer()

    def open_producer(self) -> Producer:
        """Open a new producer, which aborts an open transaction."""
        settings = {"bootstrap.servers": self._servers, "transactional.id": self._id, "linger.ms": 0, "log_level": 0}
        producer = Producer(settings)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                producer.init_transactions(TIMEOUT_S)
                return producer
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _run_transaction(self, producer: Producer, name: bytes) -> None:
        producer.begin_transaction()
        for topic in TOPICS:
            producer.produce(topic, name, partition=self._rng.randrange(PARTITIONS))
        if self._rng.random() < 0.5:
            producer.flush(TIMEOUT_S)
        if self._rng.random() < 0.3:
            producer.abort_transaction(TIMEOUT_S)
            self.aborted.add(name)
        else:
            producer.commit_transaction(TIMEOUT_S)
            self.committed.add(name)


def read(cluster: Cluster, topic: str) -> Counter[bytes]:
    servers = cluster.bootstrap_servers
    return Counter(value for each in range(PARTITIONS) for value in values(servers, topic, COMMITTED, each))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_over_two_topics_are_atomic_under_kills(seed: int, cluster: Cluster) -> None:
    rng, stopping = random.Random(seed), Event()
    producers = [TransactionalProducer(cluster.bootstrap_servers, number) for number in range(PRODUCERS)]
    with ThreadPoolExecutor(PRODUCERS) as pool:
        running = [pool.submit(producer.run, stopping) for producer in producers]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            victims = rng.sample(range(3), rng.choice([1, 1, 2]))
            for broker in victims:
                rng.choice([cluster.kill, cluster.stop])(broker)
            stopping.wait(rng.uniform(0, 1))
            for broker in victims:
                cluster.start(broker)
            stopping.wait(rng.uniform(0, 1))
        stopping.set()
        for each in running:
            each.result()
    for producer in producers:
        producer.open_producer()

    first, second = (read(cluster, topic) for topic in TOPICS)
    committed = {name for producer in producers for name in producer.committed}
    aborted = {name for producer in producers for name in producer.aborted}
    unknown = {name for producer in producers for name in producer.unknown}
    assert first == second
    assert set(first.values()) == {1}
    assert committed <= set(first) <= committed | unknown
    assert not aborted & set(first)
