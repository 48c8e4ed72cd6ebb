"""confluent-kafka, that is librdkafka."""

import time
from collections.abc import Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from compat_tests.clients.model import Abilities, Message, Record

MAX_BYTES = 16 * 1024 * 1024
_SECONDS = 30.0


class Confluent:
    """librdkafka with its defaults, except for the size limit and for the consumer's commits, which tests control."""

    name = "confluent-kafka"
    abilities = Abilities()

    def unsupported_reason(self) -> str | None:
        return None

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "acks": acks,
                "message.max.bytes": MAX_BYTES,
                "linger.ms": 20,
            }
        )
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: KafkaMessage) -> None:
            if error is not None:
                failures.append(error)

        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                message.partition,
                on_delivery=delivered,
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers),
            )
            producer.poll(0)
        assert producer.flush(_SECONDS) == 0, "records are unacknowledged after the timeout"
        assert failures == []

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        consumer = self._consumer(servers, "no-group")
        consumer.assign([TopicPartition(topic, partition, offset)])
        try:
            return self._read(consumer, count)
        finally:
            consumer.close()

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        consumer = self._consumer(servers, group)
        consumer.subscribe([topic])
        try:
            records = self._read(consumer, count)
            consumer.commit(offsets=next_offsets(topic, records), asynchronous=False)
            return records
        finally:
            consumer.close()

    def _consumer(self, servers: str, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": MAX_BYTES,
            }
        )

    def _read(self, consumer: Consumer, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + _SECONDS
        while len(records) < count:
            assert time.monotonic() < deadline, f"only {len(records)} of {count} records came: {records[-3:]}"
            for message in consumer.consume(count - len(records), timeout=0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                records.append(_record(message))
        return records


def next_offsets(topic: str, records: Sequence[Record]) -> list[TopicPartition]:
    """Return the offsets to commit after these records."""
    last = {record.partition: record.offset for record in records}
    return [TopicPartition(topic, partition, offset + 1) for partition, offset in last.items()]


def _record(message: KafkaMessage) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Record(partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(pairs))
