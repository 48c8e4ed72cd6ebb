"""Timestamps of producers and of the broker, and offset look-up by timestamp."""

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from compat_tests.clients import LIBRARIES, Client, Message
from compat_tests.clients.kafka_python import KafkaPython

_DAY = 86_400_000
_START = 1_600_000_000_000

# One timestamp goes back, and two are equal: the look-up finds the first record at or after the timestamp, not the
# nearest.
_TIMES = (_START, _START + 10, _START + 5, _START + 10, _START + 2 * _DAY)
_LOOKED_UP = (0, _START, _START + 6, _START + 10, _START + 11, _START + 2 * _DAY, _START + 3 * _DAY)
_EXPECTED_OFFSETS = (0, 0, 1, 1, 4, 4, None)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic that keeps even old records."""
    return make_topic(config={"retention.ms": "-1"})


@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_the_producers_timestamp_is_stored(client: Client, topic: str, servers: str) -> None:
    client.produce(servers, topic, [Message(b"v", timestamp_ms=each) for each in _TIMES])

    assert [record.timestamp_ms for record in client.consume(servers, topic, len(_TIMES))] == list(_TIMES)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_log_append_time_is_the_brokers_time(
    client: Client, codec: str, make_topic: Callable[..., str], servers: str
) -> None:
    topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000

    client.produce(servers, topic, [Message(b"v", timestamp_ms=each) for each in _TIMES], codec=codec)

    after = time.time_ns() // 1_000_000
    times = [record.timestamp_ms for record in client.consume(servers, topic, len(_TIMES))]
    assert all(before <= each <= after for each in times), (before, times, after)
    assert times == sorted(times)


@pytest.fixture
def timed_topic(topic: str, servers: str) -> str:
    """A topic with one record for each of _TIMES, each in its own batch."""
    for each in _TIMES:
        LIBRARIES[0].produce(servers, topic, [Message(b"v", timestamp_ms=each)])
    return topic


def test_librdkafka_finds_offsets_by_time(timed_topic: str, servers: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    found = [
        consumer.offsets_for_times([TopicPartition(timed_topic, 0, each)], timeout=30)[0].offset for each in _LOOKED_UP
    ]
    consumer.close()

    # librdkafka returns "end" if there is no such record.
    assert found == [-1 if each is None else each for each in _EXPECTED_OFFSETS]


@pytest.mark.parametrize("old", [False, True], ids=["kafka-python", "kafka-python-2.0.2"])
def test_kafka_python_finds_offsets_by_time(old: bool, timed_topic: str, servers: str) -> None:
    assert KafkaPython(old=old).offsets_for_times(servers, timed_topic, _LOOKED_UP) == list(_EXPECTED_OFFSETS)


def test_aiokafka_finds_offsets_by_time(timed_topic: str, servers: str) -> None:
    async def ask() -> list[int | None]:
        partition = AioTopicPartition(timed_topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            responses = [(await consumer.offsets_for_times({partition: each}))[partition] for each in _LOOKED_UP]
        return [None if each is None else each.offset for each in responses]

    assert asyncio.run(ask()) == list(_EXPECTED_OFFSETS)
