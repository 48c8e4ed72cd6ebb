"""`__consumer_offsets` moves between Odradek and Apache Kafka: Kafka's tool decodes it, either broker loads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from broker.tests.groups.kafkas_disk import (
    GROUPS,
    Start,
    administrator,
    await_groups,
    commit_in_transactions,
    offsets_files,
    use_groups,
)
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

pytestmark = pytest.mark.peers


def known(bootstrap: str) -> dict[str, Any]:
    """Return the groups as an admin client describes them."""
    await_groups(bootstrap, *GROUPS)
    admin = administrator(bootstrap)
    found: dict[str, Any] = {}
    for group in GROUPS:
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        description = admin.describe_consumer_groups([group])[group].result(30)
        partitions = [(p.topic, p.partition, p.offset, p.metadata) for p in offsets.topic_partitions]
        found[group] = (description.state.name, sorted(partitions, key=str))
    return found


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
def test_odradek_continues_with_kafkas_groups(start_node: Start, tmp_path: Path, version: str) -> None:
    with ApacheKafka(version, directory=tmp_path) as kafka:
        use_groups(kafka.bootstrap_servers)
        commit_in_transactions(kafka.bootstrap_servers)
        expected = known(kafka.bootstrap_servers)
    node = start_node()
    assert known(node.bootstrap) == expected
    assert expected["simple"][1] == [("t", 0, 2, None)]


def test_kafka_continues_with_our_groups(start_node: Start, tmp_path: Path) -> None:
    node = start_node()
    use_groups(node.bootstrap)
    expected = known(node.bootstrap)
    node.call(node.node.stop())
    with ApacheKafka(KAFKA_4_3, directory=tmp_path) as kafka:
        assert known(kafka.bootstrap_servers) == expected


def modern_group(bootstrap: str, *, leave: bool) -> Consumer:
    """Create a consumer group (KIP-848) that has committed offset 1 of t-0."""
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
def test_a_foreign_group_keeps_its_records(start_node: Start, tmp_path: Path, leave: bool) -> None:
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
