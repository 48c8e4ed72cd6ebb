"""Transactional producers behind one interface."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, Self

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

_SECONDS = 30.0
TopicAndPartition = tuple[str, int]


class Fenced(Exception):
    """Another producer has taken the transactional id, or the coordinator has fenced the producer after a timeout."""


class Transactions(Protocol):
    """A transactional producer; its records belong to the open transaction."""

    def begin(self) -> None: ...

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Send values and wait until they are acknowledged. Raises Fenced."""

    def send_offsets(self, group: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        """Add the group's offsets to the transaction. Raises Fenced."""

    def commit(self) -> None:
        """Commit the transaction. Raises Fenced."""

    def abort(self) -> None:
        """Abort the transaction. Raises Fenced."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TransactionalClient(Protocol):
    name: str

    def open(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> Transactions:
        """Open a producer; earlier producers are fenced when this returns."""


class ConfluentTransactions:
    """librdkafka."""

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self._servers = servers
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        with _raising_fenced():
            self._producer.init_transactions(_SECONDS)

    def begin(self) -> None:
        with _raising_fenced():
            self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        with _raising_fenced():
            for value in values:
                self._producer.produce(topic, value, partition=partition, on_delivery=_delivered)
            assert self._producer.flush(_SECONDS) == 0

    def send_offsets(self, group: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group, "log_level": 0})
        positions = [TopicPartition(*topic_and_partition, offset) for topic_and_partition, offset in offsets.items()]
        with _raising_fenced():
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, _SECONDS)
        consumer.close()

    def commit(self) -> None:
        with _raising_fenced():
            self._producer.commit_transaction(_SECONDS)

    def abort(self) -> None:
        with _raising_fenced():
            self._producer.abort_transaction(_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop the producer, which closes librdkafka's instance."""
        del self._producer


@contextmanager
def _raising_fenced() -> Iterator[None]:
    fences = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    try:
        yield
    except KafkaException as failure:
        if failure.args[0].code() in fences:
            raise Fenced(str(failure)) from failure
        raise


def _delivered(error: KafkaError | None, _: object) -> None:
    if error is not None:
        raise KafkaException(error)


class AioKafkaTransactions:
    """aiokafka in its own event loop, which runs only during a call."""

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._run(self._start(servers, transactional_id, timeout_ms))

    async def _start(self, servers: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        try:
            return self._runner.run(asyncio.wait_for(work, _SECONDS))
        except ProducerFenced as failure:
            raise Fenced(str(failure)) from failure

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        async def send() -> None:
            waiting = [await self._producer.send(topic, value, partition=partition) for value in values]
            await asyncio.gather(*waiting)

        self._run(send())

    def send_offsets(self, group: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        positions = {AioPartition(*topic_and_partition): offset for topic_and_partition, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An open transaction is left to the broker.
        with suppress(Fenced, AioError, TimeoutError):
            self._run(self._producer.stop())
        self._runner.close()


class _NamedClient:
    def __init__(self, name: str, make: Any) -> None:
        self.name = name
        self._make = make

    def open(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> Transactions:
        made: Transactions = self._make(servers, transactional_id, timeout_ms)
        return made


TRANSACTIONAL: tuple[TransactionalClient, ...] = (
    _NamedClient("confluent-kafka", ConfluentTransactions),
    _NamedClient("aiokafka", AioKafkaTransactions),
)
