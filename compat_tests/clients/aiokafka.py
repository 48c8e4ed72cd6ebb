"""aiokafka, each call in its own event loop."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from compat_tests.clients.model import Abilities, Message, Record

_MAX_BYTES = 16 * 1024 * 1024
_SECONDS = 30.0


class AioKafka:
    """aiokafka with its defaults, except for the size limit."""

    name = "aiokafka"
    abilities = Abilities(key_and_value_null=False)

    def unsupported_reason(self) -> str | None:
        return None

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        asyncio.run(asyncio.wait_for(_produce(servers, topic, messages, codec, acks), _SECONDS))

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        return asyncio.run(
            asyncio.wait_for(_consume(servers, TopicPartition(topic, partition), count, offset), _SECONDS)
        )

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        return asyncio.run(asyncio.wait_for(_consume_as_group(servers, topic, count, group), _SECONDS))


async def _produce(servers: str, topic: str, messages: Sequence[Message], codec: str, acks: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        acks=acks if acks == "all" else int(acks),
        compression_type=None if codec == "none" else codec,
        max_request_size=_MAX_BYTES,
        linger_ms=20,
    )
    async with producer:
        waiting = [
            await producer.send(
                topic,
                message.value,
                message.key,
                message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            for message in messages
        ]
        await asyncio.gather(*waiting)


async def _consume(servers: str, partition: TopicPartition, count: int, offset: int) -> list[Record]:
    async with _consumer(servers, group=None) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [_record(await consumer.getone()) for _ in range(count)]


async def _consume_as_group(servers: str, topic: str, count: int, group: str) -> list[Record]:
    async with _consumer(servers, group=group) as consumer:
        consumer.subscribe([topic])
        records = [_record(await consumer.getone()) for _ in range(count)]
        last = {record.partition: record.offset for record in records}
        await consumer.commit({TopicPartition(topic, each): offset + 1 for each, offset in last.items()})
        return records


def _consumer(servers: str, *, group: str | None) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_bytes=4 * _MAX_BYTES,
        max_partition_fetch_bytes=_MAX_BYTES,
    )


def _record(record: ConsumerRecord) -> Record:
    return Record(record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
