"""Consume, transform, produce: offsets and records are committed together or not at all."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.clients import Message
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.transformers import TRANSFORMERS, Transformer
from compat_tests.conftest import create_topic
from compat_tests.oracle.peer import Peer

_VALUES = [b"one", b"two", b"three", b"four", b"five", b"six"]
_SECONDS = 30.0
_UNSTABLE_OFFSET_COMMIT = 88
_COORDINATOR_NOT_READY = (14, 15, 16)
"""Error codes of a coordinator that is not available or not ready."""


def _offset(servers: str, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
    """Return the group's offset in partition 0, and the partition's error."""
    group_request = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    peer = Peer("ours", servers)
    try:
        while True:
            [response] = peer.ask("OffsetFetch", 8, {"groups": [group_request], "require_stable": stable})["groups"]
            if response["error_code"] not in _COORDINATOR_NOT_READY:
                [found] = response["topics"][0]["partitions"]
                return found["committed_offset"], found["error_code"]
    finally:
        peer.close()


def _stable_offset(servers: str, group: str, topic: str) -> int:
    """Return the group's offset once no transaction is pending: EndTxn responds before all markers are written."""
    while True:
        offset, error = _offset(servers, group, topic)
        if error != _UNSTABLE_OFFSET_COMMIT:
            assert error == 0
            return offset


def _committed(servers: str, topic: str, count: int) -> list[bytes]:
    """Return the first values that are not part of aborted transactions."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() or b"" for message in consumer.consume(count, timeout=_SECONDS)]
    finally:
        consumer.close()


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_records_of_an_aborted_transaction_are_consumed_again(
    transformer: Transformer, servers: str, make_topic: Callable[..., str]
) -> None:
    source, target = make_topic(), make_topic()
    group = f"transforms-{transformer.name}"
    Confluent().produce(servers, source, [Message(value) for value in _VALUES])

    def transform(*, commit: bool) -> list[bytes]:
        return transformer.transform(
            servers, source, target, group=group, transactional_id=source, count=3, commit=commit
        )

    assert transform(commit=False) == _VALUES[:3]
    assert _stable_offset(servers, group, source) == -1
    assert transform(commit=True) == _VALUES[:3]
    assert transform(commit=False) == _VALUES[3:]
    assert transform(commit=True) == _VALUES[3:]
    assert _stable_offset(servers, group, source) == 6
    assert _committed(servers, target, 6) == [value.upper() for value in _VALUES]


def _producer(servers: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(_SECONDS)
    return producer


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_an_open_transaction_survives_a_restart_of_the_broker(way: str, own_broker: Broker) -> None:
    servers = own_broker.bootstrap_servers
    source = create_topic(servers, "read")
    target = create_topic(servers, "written")
    settings = {"bootstrap.servers": servers, "group.id": "g", "log_level": 0}
    group = Consumer(settings).consumer_group_metadata()

    first = _producer(servers, "t")
    first.begin_transaction()
    first.send_offsets_to_transaction([TopicPartition(source, 0, 5)], group, _SECONDS)
    first.commit_transaction(_SECONDS)
    first.begin_transaction()
    first.produce(target, b"lost")
    first.send_offsets_to_transaction([TopicPartition(source, 0, 7)], group, _SECONDS)
    assert first.flush(_SECONDS) == 0

    getattr(own_broker, way)()
    own_broker.start()
    assert _offset(servers, "g", source) == (-1, _UNSTABLE_OFFSET_COMMIT)
    assert _offset(servers, "g", source, stable=False) == (5, 0)

    second = _producer(servers, "t")
    second.begin_transaction()
    second.produce(target, b"kept")
    second.send_offsets_to_transaction([TopicPartition(source, 0, 6)], group, _SECONDS)
    with pytest.raises(KafkaException, match="fenced"):
        first.commit_transaction(_SECONDS)
    second.commit_transaction(_SECONDS)
    assert _stable_offset(servers, "g", source) == 6
    assert _committed(servers, target, 1) == [b"kept"]
