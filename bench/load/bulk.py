"""Bulk data through librdkafka: `python -m bench.load.bulk WORK HOST:PORT TOPIC --bytes N`.

Records of 1 KiB over all partitions. The measured time begins after the first records, so that it leaves out the first
Metadata requests, and ends when the last record is acknowledged or consumed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.topics import PARTITIONS

RECORD_BYTES = 1024
_BATCH_RECORDS = 1000
_OUTSTANDING_MAX = 100_000
_TIMEOUT_S = 20.0
_IN_FLIGHT, _IN_FLIGHT_MAX = "max.in.flight.requests.per.connection", 5


def produce(broker: str, topic: str, size: int, settings: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Produce with acks=all, without idempotence (librdkafka's default), in batches up to 1 MB or 5 ms."""
    producer = Producer(
        {
            **(settings or {}),
            "bootstrap.servers": broker,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2 * _OUTSTANDING_MAX,
            "delivery.report.only.error": True,
        }
    )
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        failures.append(str(error))

    messages = [{"value": bytes(range(256)) * (RECORD_BYTES // 256)} for _ in range(_BATCH_RECORDS)]
    rounds = max(size // (RECORD_BYTES * _BATCH_RECORDS), PARTITIONS)
    for partition in range(PARTITIONS):
        producer.produce_batch(topic, messages[:1], partition=partition, on_delivery=delivered)
    producer.flush()
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(rounds):
        while len(producer) > _OUTSTANDING_MAX:
            producer.poll(0.002)
        producer.produce_batch(topic, messages, partition=number % PARTITIONS, on_delivery=delivered)
    producer.flush()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    assert not failures, failures[0]
    return {"seconds": seconds, "bytes": rounds * RECORD_BYTES * _BATCH_RECORDS, "client_cpu": cpu}


def produce_in_order(broker: str, topic: str, size: int) -> dict[str, float]:
    """Produce without idempotence, but with no more requests in flight than idempotence allows."""
    return produce(broker, topic, size, {_IN_FLIGHT: _IN_FLIGHT_MAX})


def produce_idempotently(broker: str, topic: str, size: int) -> dict[str, float]:
    return produce(broker, topic, size, {_IN_FLIGHT: _IN_FLIGHT_MAX, "enable.idempotence": True})


def consume(broker: str, topic: str, size: int) -> dict[str, float]:
    """Consume all partitions from their beginning, without a group coordinator."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default librdkafka waits a second after its queue was full before it fetches again.
            "fetch.queue.backoff.ms": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    wanted = max(size // (RECORD_BYTES * _BATCH_RECORDS), PARTITIONS) * _BATCH_RECORDS + PARTITIONS
    consumed = _consume(consumer, 1)
    first, started, cpu = consumed, time.perf_counter(), time.process_time()
    while consumed < wanted:
        consumed += _consume(consumer, wanted - consumed)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    consumer.close()
    return {"seconds": seconds, "bytes": (consumed - first) * RECORD_BYTES, "client_cpu": cpu}


def _consume(consumer: Consumer, records_max: int) -> int:
    messages = consumer.consume(min(records_max, 10_000), timeout=_TIMEOUT_S)
    if not messages:
        raise TimeoutError(f"no record came within {_TIMEOUT_S:g} s")
    error = messages[-1].error()
    if error is not None:
        raise KafkaException(error)
    return len(messages)


WORK = {
    "produce": produce,
    "produce-in-order": produce_in_order,
    "produce-idempotently": produce_idempotently,
    "consume": consume,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=WORK)
    parser.add_argument("broker")
    parser.add_argument("topic")
    parser.add_argument("--bytes", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(WORK[options.work](options.broker, options.topic, options.bytes)))


if __name__ == "__main__":
    main()
