"""`__consumer_offsets` passes between Odradek and Apache Kafka: the tool reads it, either broker goes on with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

pytestmark = pytest.mark.peers

Start = Callable[..., Any]
GROUPS = ("g", "simple", "empty")


@cache
def administrator(bootstrap: str) -> AdminClient:
    """One for each broker; it outlives the broker, and keeps quiet about that."""
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
    """One transaction moves group simple to 2, a second one that is aborted to 99. In a process of its own, whose
    client does not outlive the broker."""
    subprocess.run([sys.executable, "-c", COMMIT_IN_TRANSACTIONS, bootstrap], check=True, timeout=60)


def await_groups(bootstrap: str, *groups: str) -> None:
    """A broker that just started loads its groups. An administrator must not ask for offsets meanwhile: librdkafka
    2.16 crashes on the refusal (NOT_COORDINATOR to OffsetFetch, on a client without a group of its own)."""
    deadline = time.monotonic() + 60
    for group in groups:
        while True:
            try:
                administrator(bootstrap).describe_consumer_groups([group])[group].result(30)
                break
            except KafkaException:
                assert time.monotonic() < deadline


def known(bootstrap: str) -> dict[str, Any]:
    """What an administrator sees of the groups."""
    await_groups(bootstrap, *GROUPS)
    admin = administrator(bootstrap)
    found: dict[str, Any] = {}
    for group in GROUPS:
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        description = admin.describe_consumer_groups([group])[group].result(30)
        partitions = [(p.topic, p.partition, p.offset, p.metadata) for p in offsets.topic_partitions]
        found[group] = (description.state.name, sorted(partitions, key=str))
    return found


def offsets_files(data: Path) -> str:
    return ",".join(str(file) for file in sorted(data.glob("__consumer_offsets-*/*.log")) if file.stat().st_size)


def test_kafkas_tool_decodes_every_record(start_node: Start, tmp_path: Path) -> None:
    node = start_node()
    use_groups(node.bootstrap)
    node.call(node.node.stop())
    dump = JavaTools(KAFKA_4_3).run("kafka-dump-log", "--offsets-decoder", "--files", offsets_files(tmp_path / "data"))
    assert not re.search(r"isvalid: false|exception|error|mismatch", dump, re.I), dump
    keys = [json.loads(text) for text in re.findall(r" key: (\{.*?\}\}) payload", dump)]
    assert {(key["type"], key["data"]["group"]) for key in keys} == {
        ("1", "g"), ("1", "empty"), ("1", "simple"), ("2", "g"), ("2", "empty"),
    }  # fmt: skip
    stable = re.search(r'payload: (\{"version":"3".*"generation":1.*"members":\[\{.*)', dump)
    assert stable, dump
    member = json.loads(stable[1])["data"]["members"][0]
    assert member["clientHost"] == "/127.0.0.1"
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [0, 1]}]


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_odradek_goes_on_with_kafkas_groups(start_node: Start, tmp_path: Path, version: str) -> None:
    with ApacheKafka(version, directory=tmp_path) as kafka:
        use_groups(kafka.bootstrap_servers)
        commit_in_transactions(kafka.bootstrap_servers)
        expected = known(kafka.bootstrap_servers)
    node = start_node()
    assert known(node.bootstrap) == expected
    assert expected["simple"][1] == [("t", 0, 2, None)]


def test_kafka_goes_on_with_our_groups(start_node: Start, tmp_path: Path) -> None:
    node = start_node()
    use_groups(node.bootstrap)
    expected = known(node.bootstrap)
    node.call(node.node.stop())
    with ApacheKafka(KAFKA_4_3, directory=tmp_path) as kafka:
        assert known(kafka.bootstrap_servers) == expected


def modern_group(bootstrap: str, *, leave: bool) -> Consumer:
    """A group of Kafka 4's own protocol (KIP-848) that has committed offset 1 of t-0."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "modern", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    message = None
    while message is None or message.error() is not None or message.partition() != 0:
        message = consumer.poll(1)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    if leave:
        consumer.close()
    return consumer


@pytest.mark.parametrize("leave", [True, False])
def test_a_group_of_a_type_that_we_do_not_serve_stays_what_it_is(
    start_node: Start, tmp_path: Path, leave: bool
) -> None:
    with ApacheKafka(KAFKA_4_3, directory=tmp_path) as kafka:
        use_groups(kafka.bootstrap_servers)
        consumer = modern_group(kafka.bootstrap_servers, leave=leave)
    node = start_node()
    admin = administrator(node.bootstrap)
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(30).valid}
    assert (listed["modern"].type.name, listed["modern"].state.name) == ("CONSUMER", "EMPTY" if leave else "STABLE")
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("modern")])["modern"].result(30)
    assert [(p.topic, p.partition, p.offset) for p in offsets.topic_partitions] == [("t", 0, 1)]
    node.call(node.node.stop())
    with ApacheKafka(KAFKA_4_3, directory=tmp_path) as kafka:
        await_groups(kafka.bootstrap_servers, "modern")
        again = administrator(kafka.bootstrap_servers)
        described = again.describe_consumer_groups(["modern"])["modern"].result(30)
        assert described.type.name == "CONSUMER"
        offsets = again.list_consumer_group_offsets([ConsumerGroupTopicPartitions("modern")])["modern"].result(30)
        assert [(p.topic, p.partition, p.offset) for p in offsets.topic_partitions] == [("t", 0, 1)]
    del consumer
