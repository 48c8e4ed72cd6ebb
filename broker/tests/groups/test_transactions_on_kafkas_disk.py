"""Transactional offsets move between Odradek and Apache Kafka in `__consumer_offsets`: ended transactions stay ended,
and either broker can end an open one."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.groups.kafkas_disk import administrator, await_groups, offsets_files
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

from odradek_wire.errors import ErrorCode

pytestmark = pytest.mark.peers
Start = Callable[..., Any]
SECONDS = 60
UNSTABLE = (-1001, ErrorCode.UNSTABLE_OFFSET_COMMIT)

SCRIPT = """
import os, sys
from confluent_kafka import Consumer, Producer, TopicPartition
servers, *steps = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
producer.init_transactions(30)
consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
for step in steps:
    offset, end = step.split(":")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, int(offset))], consumer.consumer_group_metadata(), 30)
    if end == "open":
        os._exit(0)
    producer.commit_transaction(30) if end == "commit" else producer.abort_transaction(30)
"""


def commit(bootstrap: str, *steps: str) -> None:
    """Commit offsets of group g, each in a transaction that ends as the step says; an open one is aborted first.

    In a process of its own: its client does not outlive the broker."""
    subprocess.run([sys.executable, "-c", SCRIPT, bootstrap, *steps], check=True, timeout=SECONDS)


def offset(bootstrap: str, *, stable: bool) -> tuple[int, int]:
    """Return the offset that an admin client fetches, and its error."""
    await_groups(bootstrap, "g")
    asked = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0)])]
    found = administrator(bootstrap).list_consumer_group_offsets(asked, require_stable=stable)["g"].result(30)
    [partition] = found.topic_partitions
    return partition.offset, partition.error.code() if partition.error else 0


def settled(bootstrap: str) -> int:
    """Wait until no transaction is open, and return the offset: EndTxn responds before all markers are written."""
    deadline = time.monotonic() + SECONDS
    while (found := offset(bootstrap, stable=True)) == UNSTABLE:
        assert time.monotonic() < deadline
    assert found[1] == 0
    return found[0]


def begin(bootstrap: str) -> None:
    administrator(bootstrap).create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    commit(bootstrap, "2:commit", "99:abort", "50:open")


def go_on(bootstrap: str) -> None:
    assert offset(bootstrap, stable=True) == UNSTABLE
    assert offset(bootstrap, stable=False) == (2, 0)
    commit(bootstrap, "3:commit", "98:abort")
    assert settled(bootstrap) == 3


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_odradek_continues_with_kafkas_transactions(start_node: Start, tmp_path: Path, version: str) -> None:
    with ApacheKafka(version, directory=tmp_path) as kafka:
        begin(kafka.bootstrap_servers)
    go_on(start_node().bootstrap)


def test_kafka_continues_with_our_transactions(start_node: Start, tmp_path: Path) -> None:
    node = start_node()
    begin(node.bootstrap)
    node.call(node.node.stop())
    dump = JavaTools(KAFKA_4_3).run("kafka-dump-log", "--offsets-decoder", "--files", offsets_files(tmp_path / "data"))
    assert not re.search(r"isvalid: false|exception|error|mismatch", dump, re.I), dump
    assert re.findall(r"endTxnMarker: (\w+)", dump) == ["COMMIT", "ABORT"]
    transactional = [line for line in dump.splitlines() if "isTransactional: true isControl: false" in line]
    assert len(transactional) == 3, dump
    with ApacheKafka(KAFKA_4_3, directory=tmp_path) as kafka:
        go_on(kafka.bootstrap_servers)
