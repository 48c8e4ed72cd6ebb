"""Apache Kafka's tool decodes our metadata log, and its broker opens our data directory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from controller.tests.controller_kit import CLUSTER_ID, directory_of, join, running, topics
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

from odradek_controller.levels import Emulation
from odradek_controller.metadata_log_store import MetadataLogStore
from odradek_log.directory import LogDirectory
from odradek_log.meta_properties import MetaProperties
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest

pytestmark = pytest.mark.peers

METADATA = "__cluster_metadata-0"


def _dump(file: Path, version: str = KAFKA_4_3) -> str:
    return JavaTools(version).run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(file))


def _records(dump: str) -> list[tuple[str, dict[str, Any]]]:
    found = [json.loads(text) for text in re.findall(r"payload: (\{.*\})$", dump, re.MULTILINE)]
    return [(record["type"], record["data"]) for record in found]


def _topic_with_configs(name: str, partitions: int, **configs: str) -> CreateTopicsRequest:
    rows = [CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, partitions, 1, [], rows)])


async def _write(path: Path, emulation: Emulation = Emulation.UNION) -> str:
    """Make some changes of a cluster; return the name of a snapshot written between them."""
    path.mkdir(parents=True)
    directory = LogDirectory.open(path, wall_ms=lambda: 0, later=lambda _delay, _callback: None)
    directory.write_meta(MetaProperties(1, CLUSTER_ID, 1, directory_of(1)))
    directory.close_without_writing()
    async with running(path, emulation=emulation) as controller:
        await join(controller, 1, 11)
        await controller.submit(_topic_with_configs("one", 1, retention_ms="3600000"))
        await controller.submit(topics("two", partitions=3))
        assert isinstance(controller.store, MetadataLogStore)
        snapshot = controller.store.write_snapshot().file_name
        await controller.submit(topics("gone"))
        await controller.submit(DeleteTopicsRequest(topic_names=["gone"]))
        await controller.submit(AllocateProducerIdsRequest(1, controller.image.brokers[1].epoch))
        await controller.fence_broker(1)
    return snapshot


@pytest.mark.parametrize(("emulation", "version"), [(Emulation.UNION, KAFKA_4_3), (Emulation.KAFKA_3_9, KAFKA_3_9)])
async def test_kafkas_tool_decodes_every_record_of_the_log_and_of_checkpoints(
    tmp_path: Path, emulation: Emulation, version: str
) -> None:
    snapshot = await _write(tmp_path / "data", emulation)
    log = _dump(tmp_path / "data" / METADATA / "00000000000000000000.log", version)
    assert "isvalid: false" not in log
    kinds = [kind for kind, _ in _records(log)]
    assert kinds.count("TOPIC_RECORD") == 3
    assert kinds.count("PARTITION_RECORD") == 5
    assert {"REGISTER_BROKER_RECORD", "CONFIG_RECORD", "REMOVE_TOPIC_RECORD", "PRODUCER_IDS_RECORD"} <= set(kinds)
    if version == KAFKA_4_3:
        assert 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}]' in log
    taken = _dump(tmp_path / "data" / METADATA / snapshot, version)
    names = {data["name"] for kind, data in _records(taken) if kind == "TOPIC_RECORD"}
    assert names == {"one", "two"}
    bootstrap = _dump(tmp_path / "data" / "bootstrap.checkpoint", version)
    levels = {data["name"]: data["featureLevel"] for _, data in _records(bootstrap)}
    assert levels == dict(emulation.initial.finalized)


async def test_kafka_and_odradek_open_each_others_data_directory(tmp_path: Path) -> None:
    await _write(tmp_path / "kafka" / "data")
    kafka = ApacheKafka(KAFKA_4_3, directory=tmp_path / "kafka")
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        found = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in found.items()} == {"one": 1, "two": 3}
        resource = ConfigResource(ConfigResource.Type.TOPIC, "one")
        configs = admin.describe_configs([resource])[resource].result(30)
        assert configs["retention.ms"].value == "3600000"
    assert not [name for name in kafka.data_directory.iterdir() if name.name.endswith("-stray")]
    async with running(kafka.data_directory) as controller:
        assert sorted((t.name, len(t.partitions)) for t in controller.image.topics.values()) == [("one", 1), ("two", 3)]
        await join(controller, 1, 12)
        assert (await controller.submit(topics("three"))).topics[0].error_code == 0
        leaders = {partition.leader for t in controller.image.topics.values() for partition in t.partitions}
        assert leaders == {1}
