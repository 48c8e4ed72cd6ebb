"""The position at which a consumer begins: an explicit offset, an end, a committed offset, after a broker restart."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.clients import CLIENTS, LIBRARIES, Client, Message
from compat_tests.conftest import create_topic

_MESSAGES = [Message(b"%d" % number) for number in range(10)]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_an_assigned_partition_is_read_from_the_chosen_offset(client: Client, topic: str, servers: str) -> None:
    # Two batches, and an offset inside the second.
    LIBRARIES[0].produce(servers, topic, _MESSAGES[:4])
    LIBRARIES[0].produce(servers, topic, _MESSAGES[4:])

    records = client.consume(servers, topic, 3, offset=7)

    assert [(record.offset, record.value) for record in records] == [(7, b"7"), (8, b"8"), (9, b"9")]


@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_only_the_assigned_partition_is_read(client: Client, make_topic: Callable[..., str], servers: str) -> None:
    topic = make_topic(partitions=3)
    client.produce(servers, topic, [Message(b"%d" % part, partition=part) for part in (0, 1, 2)])

    records = client.consume(servers, topic, 1, partition=2)

    assert [(record.partition, record.offset, record.value) for record in records] == [(2, 0, b"2")]


def test_librdkafka_seeks_in_both_directions(topic: str, servers: str) -> None:
    LIBRARIES[0].produce(servers, topic, _MESSAGES)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 5)])

    def next_value() -> bytes | None:
        (message,) = consumer.consume(1, timeout=30)
        return message.value()

    assert next_value() == b"5"
    for offset, value in ((2, b"2"), (9, b"9"), (OFFSET_BEGINNING, b"0")):
        consumer.seek(TopicPartition(topic, 0, offset))
        assert next_value() == value
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 10)
    consumer.close()


def test_aiokafka_seeks_in_both_directions(topic: str, servers: str) -> None:
    LIBRARIES[0].produce(servers, topic, _MESSAGES)
    partition = AioTopicPartition(topic, 0)

    async def seek() -> list[bytes | None]:
        values = []
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([partition])
            for offset in (5, 2, 9):
                consumer.seek(partition, offset)
                values.append((await consumer.getone()).value)
            await consumer.seek_to_beginning(partition)
            values.append((await consumer.getone()).value)
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10
            assert await consumer.end_offsets([partition]) == {partition: 10}
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
        return values

    assert asyncio.run(seek()) == [b"5", b"2", b"9", b"0"]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_group_continues_at_its_committed_offset(client: Client, topic: str, servers: str) -> None:
    LIBRARIES[0].produce(servers, topic, _MESSAGES)
    if client.name in ("kcat", "java-console-4.3.0", "java-console-3.9.1"):
        # These clients always commit everything that they have fetched when they end.
        first = client.consume_as_group(servers, topic, 10, group=topic)
        LIBRARIES[0].produce(servers, topic, [Message(b"more")])
        assert [record.offset for record in first] == list(range(10))
        assert [each.value for each in client.consume_as_group(servers, topic, 1, group=topic)] == [b"more"]
        return

    first = client.consume_as_group(servers, topic, 4, group=topic)
    then = client.consume_as_group(servers, topic, 6, group=topic)

    assert [record.offset for record in first] == [0, 1, 2, 3]
    assert [record.offset for record in then] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_committed_offsets_survive_a_broker_restart(way: str, own_broker: Broker) -> None:
    topic = create_topic(own_broker.bootstrap_servers, "restarted")
    LIBRARIES[0].produce(own_broker.bootstrap_servers, topic, _MESSAGES)
    for client in LIBRARIES:
        client.consume_as_group(own_broker.bootstrap_servers, topic, 4, group=client.name)

    getattr(own_broker, way)()
    own_broker.start()

    LIBRARIES[0].produce(own_broker.bootstrap_servers, topic, [Message(b"after")])
    offsets = {
        client.name: [
            record.offset
            for record in client.consume_as_group(own_broker.bootstrap_servers, topic, 7, group=client.name)
        ]
        for client in LIBRARIES
    }
    assert offsets == {client.name: [4, 5, 6, 7, 8, 9, 10] for client in LIBRARIES}
    all_records = LIBRARIES[0].consume(own_broker.bootstrap_servers, topic, 11)
    assert [record.value for record in all_records] == [*(message.value for message in _MESSAGES), b"after"]
