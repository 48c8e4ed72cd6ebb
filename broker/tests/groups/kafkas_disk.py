"""Groups in data directories that pass between Odradek and Apache Kafka, for tests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

Start = Callable[..., Any]


GROUPS = ("g", "simple", "empty")


@cache
def administrator(bootstrap: str) -> AdminClient:
    """Return the admin client of one broker; it outlives the broker, and logs nothing about that."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def use_groups(bootstrap: str) -> None:
    """Group g reads two records of t and stays, simple only commits, empty reads and leaves."""
    admin = administrator(bootstrap)
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(10)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(4):
        producer.produce("t", str(number), partition=number % 2)
    producer.flush(10)
    for group in ("g", "empty"):
        read_two_records(bootstrap, group)
    request = ConsumerGroupTopicPartitions("simple", [TopicPartition("t", 0, 1, metadata="by hand")])
    admin.alter_consumer_group_offsets([request])["simple"].result(10)


def read_two_records(bootstrap: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read = 0
    while read < 2:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read += 1
            consumer.commit(message, asynchronous=False)
    consumer.close()


COMMIT_IN_TRANSACTIONS = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "tx"})
producer.init_transactions(30)
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "simple"})
for offset, commit in ((2, True), (99, False)):
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], consumer.consumer_group_metadata())
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)
"""


def commit_in_transactions(bootstrap: str) -> None:
    """Commit offset 2 of group simple in one transaction, and offset 99 in a second one that aborts.

    In a process of its own: its client does not outlive the broker."""
    subprocess.run([sys.executable, "-c", COMMIT_IN_TRANSACTIONS, bootstrap], check=True, timeout=60)


def await_groups(bootstrap: str, *groups: str) -> None:
    """Wait until a broker that has just started has loaded its groups. Before that, librdkafka 2.16 crashes on the
    NOT_COORDINATOR in an OffsetFetch response, on a client without a group of its own."""
    deadline = time.monotonic() + 60
    for group in groups:
        while True:
            try:
                administrator(bootstrap).describe_consumer_groups([group])[group].result(30)
                break
            except KafkaException:
                assert time.monotonic() < deadline


def offsets_files(data: Path) -> str:
    return ",".join(str(file) for file in sorted(data.glob("__consumer_offsets-*/*.log")) if file.stat().st_size)
