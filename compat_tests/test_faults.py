"""A producer's delivery guarantee when acknowledgements are lost, which Odradek's faults simulate.

Only for Odradek, because Apache Kafka cannot simulate the loss of a response.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from compat_tests.clients import LIBRARIES, Message
from compat_tests.conftest import create_topic
from odradek import Cluster

_MESSAGES = [Message(b"%d" % number) for number in range(20)]


@pytest.fixture(scope="module")
def cluster(broker_name: str) -> Iterator[Cluster]:
    """A broker with simulated faults."""
    if broker_name != "odradek":
        pytest.skip("only Odradek simulates faults")
    with Cluster(process=True, config={"node.id": "1"}) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition; the faults end with the test."""
    name = request.node.name.replace("[", "-").replace("]", "")[:200]
    yield create_topic(cluster.bootstrap_servers, name)
    cluster.faults.clear()


def _send(cluster: Cluster, topic: str, **config: object) -> list[KafkaError | None]:
    """Send _MESSAGES, one request each. Return the outcome of each, as the producer sees it."""
    outcomes: list[KafkaError | None] = []
    settings: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "socket.timeout.ms": 1000,
        "batch.num.messages": 1,
        "retry.backoff.ms": 10,
        "log_level": 0,
        **config,
    }
    producer = Producer(settings)
    for message in _MESSAGES:
        producer.produce(topic, message.value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    return outcomes


def _read(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Return all values in the partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return [record.value for record in LIBRARIES[0].consume(cluster.bootstrap_servers, topic, end)]


_SENT = [message.value for message in _MESSAGES]


@pytest.mark.parametrize("how", ["drop", "disconnect"])
def test_at_least_once_retries_unacknowledged_records(how: str, cluster: Cluster, topic: str) -> None:
    getattr(cluster.faults, how)("Produce", when="response", times=2)

    outcomes = _send(cluster, topic, acks="all", retries=10)

    assert outcomes == [None] * len(_MESSAGES)
    found = _read(cluster, topic)
    assert set(found) == set(_SENT)
    assert len(found) > len(_SENT), "no unacknowledged record is stored twice"


@pytest.mark.parametrize("how", ["drop", "disconnect"])
def test_at_most_once_never_writes_twice(how: str, cluster: Cluster, topic: str) -> None:
    getattr(cluster.faults, how)("Produce", when="request", times=2)

    outcomes = _send(cluster, topic, acks="all", retries=0, **{"max.in.flight": 1})

    lost = sum(outcome is not None for outcome in outcomes)
    assert lost >= 2
    found = _read(cluster, topic)
    assert len(found) == len(set(found)) == len(_SENT) - lost


def test_at_most_once_may_have_written_a_failed_record(cluster: Cluster, topic: str) -> None:
    cluster.faults.drop("Produce", when="response", times=1)

    outcomes = _send(cluster, topic, acks="all", retries=0, **{"max.in.flight": 1})

    assert [outcome is not None for outcome in outcomes].count(True) == 1
    assert _read(cluster, topic) == _SENT


@pytest.mark.parametrize("how", ["drop", "disconnect"])
@pytest.mark.parametrize("when", ["request", "response"])
def test_an_idempotent_producer_writes_everything_once_and_in_order(
    how: str, when: str, cluster: Cluster, topic: str
) -> None:
    getattr(cluster.faults, how)("Produce", when=when, times=3)

    # One request in flight with dropped responses: TCP never loses a response in the middle of a stream, and librdkafka
    # fails if the next one arrives without it.
    outcomes = _send(cluster, topic, **{"enable.idempotence": True, "max.in.flight": 1 if how == "drop" else 5})

    assert outcomes == [None] * len(_MESSAGES)
    assert _read(cluster, topic) == _SENT


def test_retriable_errors_are_retried_and_fatal_ones_raised(cluster: Cluster, topic: str) -> None:
    cluster.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert _send(cluster, topic, acks="all", retries=10) == [None] * len(_MESSAGES)

    cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
    outcomes = _send(cluster, topic, acks="all", retries=10)
    refused = [outcome.code() for outcome in outcomes if outcome is not None]
    assert set(refused) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def test_a_consumer_continues_after_lost_fetch_responses(cluster: Cluster, topic: str) -> None:
    assert _send(cluster, topic, acks="all") == [None] * len(_MESSAGES)
    cluster.faults.disconnect("Fetch", when="request", times=2)
    cluster.faults.disconnect("Fetch", when="response", times=2)

    assert sorted(filter(None, _read(cluster, topic))) == sorted(filter(None, _SENT))
