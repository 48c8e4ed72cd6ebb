"""Transactions of one librdkafka producer: `python -m bench.load.transactions produce|transform HOST:PORT TOPIC …`.

`produce` writes a hundred records of 1 KiB in each transaction; `transform` reads a hundred from a second topic, writes
them to the first, and commits the consumer's offset in the transaction. The time runs from the end of the first
transaction, which finds coordinators and leaders, to the end of the last.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.topics import PARTITIONS

RECORDS = 100
Record = dict[str, Any]
_VALUE = bytes(range(256)) * 4
_TIMEOUT_S = 60.0
_FILL = 20_000


class Transactions:
    """A transactional producer; a transaction that fails ends the run."""

    def __init__(self, broker: str, topic: str) -> None:
        self._topic = topic
        self._failures: list[str] = []
        settings = {"bootstrap.servers": broker, "transactional.id": topic, "delivery.report.only.error": True}
        self._producer = Producer(settings)
        self._producer.init_transactions(_TIMEOUT_S)

    def run(self, number: int, records: list[Record], add: Callable[[Producer], None] = lambda _: None) -> None:
        """Write records to the next partition in a transaction, call `add`, and commit the transaction."""
        producer = self._producer
        producer.begin_transaction()
        producer.produce_batch(self._topic, records, partition=number % PARTITIONS, on_delivery=self._delivered)
        add(producer)
        producer.commit_transaction(_TIMEOUT_S)
        assert not self._failures, self._failures[0]

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failures.append(str(error))


def produce(broker: str, topic: str, _source: str, count: int) -> dict[str, float]:
    transactions = Transactions(broker, topic)
    messages = [{"value": _VALUE} for _ in range(RECORDS)]
    transactions.run(0, messages)
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        transactions.run(number, messages)
    return _figures(count, started, cpu)


def transform(broker: str, topic: str, source: str, count: int) -> dict[str, float]:
    """Read, write and commit. The consumer joins no group, and never waits, because the source is filled before."""
    _fill(broker, source, (count + 1) * RECORDS)
    settings = {"bootstrap.servers": broker, "group.id": source, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 2})
    consumer.assign([TopicPartition(source, 0, OFFSET_BEGINNING)])
    transactions = Transactions(broker, topic)
    member = consumer.consumer_group_metadata()

    def transform_once(number: int) -> None:
        read = consumer.consume(RECORDS, timeout=_TIMEOUT_S)
        if len(read) < RECORDS or any(message.error() for message in read):
            raise KafkaException(read[-1].error() if read else "no more records")
        position = consumer.position([TopicPartition(source, 0)])
        written = [{"value": message.value()} for message in read]

        def add_offsets(producer: Producer) -> None:
            producer.send_offsets_to_transaction(position, member, _TIMEOUT_S)

        transactions.run(number, written, add_offsets)

    transform_once(0)
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        transform_once(number)
    figures = _figures(count, started, cpu)
    (committed,) = consumer.committed([TopicPartition(source, 0)], _TIMEOUT_S)
    assert committed.offset == (count + 1) * RECORDS, committed
    consumer.close()
    return figures


def _fill(broker: str, source: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5, "queue.buffering.max.messages": 2 * _FILL})
    for _ in range(records):
        producer.produce(source, _VALUE, partition=0)
        while len(producer) > _FILL:
            producer.poll(0.01)
    assert producer.flush(_TIMEOUT_S) == 0


def _figures(count: int, started: float, cpu: float) -> dict[str, float]:
    seconds = time.perf_counter() - started
    return {"transactions": count, "seconds": seconds, "client_busy": (time.process_time() - cpu) / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["produce", "transform"])
    parser.add_argument("broker")
    parser.add_argument("topic")
    parser.add_argument("--source", default="")
    parser.add_argument("--transactions", type=int, required=True)
    options = parser.parse_args()
    work = produce if options.work == "produce" else transform
    print(json.dumps(work(options.broker, options.topic, options.source, options.transactions)))


if __name__ == "__main__":
    main()
