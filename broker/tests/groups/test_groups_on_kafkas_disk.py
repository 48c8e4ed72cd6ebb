"""`__consumer_offsets` passes between Odradek and Apache Kafka: the tool reads it, either broker goes on with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

pytestmark = pytest.mark.peers

Start = Callable[..., Any]
GROUPS = ("g", "simple", "empty")


def use_groups(bootstrap: str) -> None:
    """Group g reads two records of t and stays, simple only commits, empty reads and leaves."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
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


def commit_in_transactions(bootstrap: str) -> None:
    """One transaction moves group simple to 2, a second one that is aborted to 99."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    for offset, commit in ((2, True), (99, False)):
        producer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], metadata)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    consumer.close()


def known(bootstrap: str) -> dict[str, Any]:
    """What an administrator sees of the groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
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
