"""Transactional clients: which records consumers read, and which producers are fenced."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.clients.transactional import TRANSACTIONAL, Fenced, TransactionalClient
from compat_tests.conftest import create_topic
from compat_tests.isolation import COMMITTED, UNCOMMITTED, values
from odradek import Cluster

_ids = count()


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{next(_ids)}"


@pytest.fixture(params=TRANSACTIONAL)
def transactional_client(request: pytest.FixtureRequest) -> TransactionalClient:
    client: TransactionalClient = request.param
    return client


@pytest.fixture
def three_brokers(broker_name: str) -> Iterator[Cluster]:
    if broker_name != "odradek":
        pytest.skip("needs a cluster of Odradek's brokers")
    settings = {"transaction.state.log.min.isr": 2, "offsets.topic.num.partitions": 3}
    with Cluster(brokers=3, config=settings) as cluster:
        yield cluster


def committed_offset(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        return found.offset
    finally:
        consumer.close()


def test_read_committed_returns_committed_records_only(
    servers: str, topic: str, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    with transactional_client.open(servers, transactional_id) as producer:
        for number in range(4):
            producer.begin()
            producer.send(topic, *(b"%d-%d" % (number, each) for each in range(3)))
            (producer.abort if number % 2 else producer.commit)()
    all_values = [b"%d-%d" % (number, each) for number in range(4) for each in range(3)]
    assert values(servers, topic, UNCOMMITTED) == all_values
    assert values(servers, topic, COMMITTED) == [each for each in all_values if each[:1] in b"02"]


def test_an_open_transaction_holds_the_last_stable_offset(
    servers: str, topic: str, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    with (
        transactional_client.open(servers, transactional_id) as first,
        transactional_client.open(servers, transactional_id + "b") as second,
    ):
        first.begin()
        first.send(topic, b"first")
        second.begin()
        second.send(topic, b"second")
        second.commit()
        assert values(servers, topic, COMMITTED) == []
        first.abort()
        assert values(servers, topic, COMMITTED) == [b"second"]


def test_a_transaction_is_committed_in_all_of_its_partitions(
    servers: str, make_topic: Callable[..., str], transactional_id: str, transactional_client: TransactionalClient
) -> None:
    topics = [make_topic(partitions=3) for _ in range(2)]
    with transactional_client.open(servers, transactional_id) as producer:
        producer.begin()
        for topic in topics:
            for partition in range(3):
                producer.send(topic, b"v", partition=partition)
        producer.commit()
    for topic in topics:
        assert [values(servers, topic, COMMITTED, partition) for partition in range(3)] == [[b"v"]] * 3


def test_init_transactions_aborts_and_fences_the_earlier_producer(
    servers: str, topic: str, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    with transactional_client.open(servers, transactional_id) as zombie:
        zombie.begin()
        zombie.send(topic, b"left open")
        with transactional_client.open(servers, transactional_id) as successor:
            successor.begin()
            successor.send(topic, b"of the successor")
            with pytest.raises(Fenced):
                zombie.commit()
            successor.commit()
    assert values(servers, topic, COMMITTED) == [b"of the successor"]


def test_an_abandoned_transaction_is_aborted(
    make_broker: Callable[[Mapping[str, str]], Broker], transactional_id: str, transactional_client: TransactionalClient
) -> None:
    own = make_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    servers = own.bootstrap_servers
    topic = create_topic(servers, "abandoned")
    with (
        transactional_client.open(servers, transactional_id, timeout_ms=1_000) as idle,
        transactional_client.open(servers, transactional_id + "b") as other,
    ):
        idle.begin()
        idle.send(topic, b"abandoned")
        other.begin()
        other.send(topic, b"kept")
        other.commit()
        while not values(servers, topic, COMMITTED):
            pass
        assert values(servers, topic, COMMITTED) == [b"kept"]
        with pytest.raises(Fenced):
            idle.commit()


def test_transactional_offsets_take_effect_at_the_commit(
    servers: str, topic: str, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    group = transactional_id + "-group"
    with transactional_client.open(servers, transactional_id) as producer:
        for offset, commit in ((5, True), (7, False), (6, True)):
            producer.begin()
            producer.send(topic, b"v")
            producer.send_offsets(group, {(topic, 0): offset})
            (producer.commit if commit else producer.abort)()
            assert committed_offset(servers, group, topic) == (offset if commit else 5)


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_transactional_producer_continues_after_a_restart(
    way: str, own_broker: Broker, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    servers = own_broker.bootstrap_servers
    topic = create_topic(servers, "over-a-restart")
    with transactional_client.open(servers, transactional_id) as producer:
        producer.begin()
        producer.send(topic, b"before")
        producer.commit()
        producer.begin()
        producer.send(topic, b"open")
        getattr(own_broker, way)()
        own_broker.start()
        producer.send(topic, b"too")
        producer.commit()
    assert values(servers, topic, COMMITTED) == [b"before", b"open", b"too"]


def test_a_producer_continues_while_brokers_are_killed_in_turn(
    three_brokers: Cluster, transactional_id: str, transactional_client: TransactionalClient
) -> None:
    servers = three_brokers.bootstrap_servers
    three_brokers.create_topic("t", partitions=1, replicas=3, config={"min.insync.replicas": "2"})
    expected: list[bytes] = []
    with transactional_client.open(servers, transactional_id) as producer:
        for number in range(12):
            producer.begin()
            producer.send("t", b"%d" % number)
            if number % 4 == 1:
                three_brokers.kill(number // 4)
            if number % 4 == 3:
                three_brokers.start(number // 4)
            if number % 3:
                producer.commit()
                expected.append(b"%d" % number)
            else:
                producer.abort()
    assert values(servers, "t", COMMITTED) == expected
