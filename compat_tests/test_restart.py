"""A broker that restarts while clients work: no acknowledged record is lost or repeated."""

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from compat_tests.brokers import Broker
from compat_tests.clients import CLIENTS, LIBRARIES
from compat_tests.clients import Message as Sent
from compat_tests.conftest import create_topic

_BEFORE, _AFTER = 2000, 1000


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_idempotent_producer_and_consumer_survive_a_restart(way: str, own_broker: Broker) -> None:
    servers = own_broker.bootstrap_servers
    topic = create_topic(servers, "over-a-restart")
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])

    def send(numbers: range) -> None:
        for number in numbers:
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=delivered)
            producer.poll(0)

    send(range(_BEFORE))
    read: list[int] = []
    while len(read) < _BEFORE // 2:
        read += _values(consumer)

    getattr(own_broker, way)()
    send(range(_BEFORE, _BEFORE + _AFTER))
    own_broker.start()

    assert producer.flush(60) == 0
    assert failures == []
    while len(read) < _BEFORE + _AFTER:
        read += _values(consumer)
    consumer.close()
    assert read == list(range(_BEFORE + _AFTER))


def _values(consumer: Consumer) -> list[int]:
    messages = consumer.consume(500, timeout=1.0)
    return [int(message.value() or b"") for message in messages if message.error() is None]


def test_records_of_every_client_survive_kill_9(own_broker: Broker) -> None:
    servers = own_broker.bootstrap_servers
    topic = create_topic(servers, "killed", config={"segment.bytes": "1048576"})
    written = []
    for client in CLIENTS:
        if client.unsupported_reason() is None:
            messages = [Sent(f"{client.name} {number}".encode(), b"key") for number in range(50)]
            client.produce(servers, topic, messages)
            written += messages

    own_broker.kill()
    own_broker.start()

    assert [record.content for record in LIBRARIES[0].consume(servers, topic, len(written))] == written
