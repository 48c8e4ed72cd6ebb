"""Clients that consume, transform and produce in one transaction, each with its own API."""

import asyncio
import time
from typing import Protocol

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

_SECONDS = 30.0


class Transformer(Protocol):
    """A client that transforms records; every call makes a consumer and a producer, uses them and closes them."""

    name: str

    def transform(
        self, servers: str, source: str, target: str, *, group: str, transactional_id: str, count: int, commit: bool
    ) -> list[bytes]:
        """As a member of the group, read the next records of the source and write each in capitals to the target, in
        one transaction with the offsets. Commit or abort it, and return the values read."""


class ConfluentTransformer:
    """librdkafka."""

    name = "confluent-kafka"

    def transform(
        self, servers: str, source: str, target: str, *, group: str, transactional_id: str, count: int, commit: bool
    ) -> list[bytes]:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
        producer.init_transactions(_SECONDS)
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([source])
        try:
            producer.begin_transaction()
            values: list[bytes] = []
            end = 0
            deadline = time.monotonic() + _SECONDS
            while len(values) < count:
                assert time.monotonic() < deadline, f"only {values} arrived"
                for message in consumer.consume(count - len(values), timeout=0.5):
                    assert message.error() is None, message.error()
                    values.append(message.value() or b"")
                    end = (message.offset() or 0) + 1
                    producer.produce(target, values[-1].upper())
            offsets = [TopicPartition(source, 0, end)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _SECONDS)
            if commit:
                producer.commit_transaction(_SECONDS)
            else:
                producer.flush(_SECONDS)
                producer.abort_transaction(_SECONDS)
            return values
        finally:
            consumer.close()


class AioKafkaTransformer:
    """aiokafka, whose offset commits carry no member id."""

    name = "aiokafka"

    def transform(
        self, servers: str, source: str, target: str, *, group: str, transactional_id: str, count: int, commit: bool
    ) -> list[bytes]:
        async def run() -> list[bytes]:
            settings = {"bootstrap_servers": servers, "isolation_level": "read_committed"}
            consumer = AIOKafkaConsumer(
                source, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", **settings
            )
            producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
            async with consumer, producer:
                await producer.begin_transaction()
                records = [await consumer.getone() for _ in range(count)]
                for record in records:
                    await producer.send_and_wait(target, record.value.upper())
                offsets = {AioPartition(source, 0): records[-1].offset + 1}
                await producer.send_offsets_to_transaction(offsets, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
                return [record.value for record in records]

        return asyncio.run(asyncio.wait_for(run(), _SECONDS))


class KafkaPythonTransformer:
    """kafka-python."""

    name = "kafka-python"

    def transform(
        self, servers: str, source: str, target: str, *, group: str, transactional_id: str, count: int, commit: bool
    ) -> list[bytes]:
        producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        producer.init_transactions()
        consumer = kafka.KafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=_SECONDS * 1000,
        )
        try:
            producer.begin_transaction()
            records = [next(consumer) for _ in range(count)]
            for record in records:
                producer.send(target, record.value.upper()).get(_SECONDS)
            end = kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({kafka.TopicPartition(source, 0): end}, consumer.group_metadata())
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            return [record.value for record in records]
        finally:
            consumer.close(autocommit=False)
            producer.close()


TRANSFORMERS: tuple[Transformer, ...] = (ConfluentTransformer(), AioKafkaTransformer(), KafkaPythonTransformer())
