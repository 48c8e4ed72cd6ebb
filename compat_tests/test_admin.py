"""The Python admin clients: the same operations with each library's own calls."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from kafka.errors import TopicAlreadyExistsError

from compat_tests.clients import LIBRARIES, Message


@pytest.fixture
def admin(servers: str) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": servers})


def _done(futures: dict[Any, Any]) -> Any:
    """Return the result of a call for one resource."""
    ((_, future),) = futures.items()
    return future.result(30)


def _until(condition: Callable[[], bool]) -> None:
    """Wait for a condition: Apache Kafka's brokers learn of a change a moment after the response."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


def test_librdkafka_creates_grows_and_deletes_topics(admin: AdminClient) -> None:
    _done(admin.create_topics([NewTopic("by-librdkafka", 2, 1, config={"retention.ms": "60000"})]))

    with pytest.raises(KafkaException) as refused:
        _done(admin.create_topics([NewTopic("by-librdkafka", 2, 1)]))
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refused:
        _done(admin.create_topics([NewTopic("not a name", 1, 1)]))
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
    with pytest.raises(KafkaException) as refused:
        _done(admin.create_topics([NewTopic("too-many-replicas", 1, 3)]))
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR

    _done(admin.create_partitions([NewPartitions("by-librdkafka", 5)]))
    _until(lambda: len(admin.list_topics("by-librdkafka", timeout=30).topics["by-librdkafka"].partitions) == 5)
    _done(admin.delete_topics(["by-librdkafka"], operation_timeout=30))
    _until(lambda: "by-librdkafka" not in admin.list_topics(timeout=30).topics)


def test_librdkafka_describes_and_alters_configurations(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    _done(admin.incremental_alter_configs([change]))

    described = _done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))

    assert described["cleanup.policy"].value == "delete,compact"
    assert not described["cleanup.policy"].is_default
    assert described["segment.bytes"].value == "1073741824"
    assert described["segment.bytes"].is_default
    wrong = ConfigEntry("no.such", "1", incremental_operation=AlterConfigOpType.SET)
    with pytest.raises(KafkaException) as refused:
        _done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wrong])]))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_librdkafka_describes_the_cluster_and_topics(admin: AdminClient, topic: str) -> None:
    cluster = admin.describe_cluster(request_timeout=30).result(30)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1

    from confluent_kafka import TopicCollection

    described = _done(admin.describe_topics(TopicCollection([topic])))
    assert [(part.id, part.leader.id, [each.id for each in part.isr]) for part in described.partitions] == [(0, 1, [1])]


def test_librdkafka_lists_offsets_and_deletes_records(admin: AdminClient, topic: str, servers: str) -> None:
    LIBRARIES[0].produce(servers, topic, [Message(b"%d" % number) for number in range(10)])
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found = _done(admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED))
        return int(found.offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 10)
    assert _done(admin.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (4, 10)


def test_librdkafka_lists_describes_and_deletes_groups(admin: AdminClient, topic: str, servers: str) -> None:
    group = f"group-of-{topic}"
    LIBRARIES[0].produce(servers, topic, [Message(b"v")] * 3)
    LIBRARIES[0].consume_as_group(servers, topic, 3, group=group)

    listed = admin.list_consumer_groups().result(30).valid
    assert [each.state.name for each in listed if each.group_id == group] == ["EMPTY"]
    assert _done(admin.describe_consumer_groups([group])).state.name == "EMPTY"
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    assert [each.offset for each in _done(admin.list_consumer_group_offsets([asked])).topic_partitions] == [3]

    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    _done(admin.alter_consumer_group_offsets([change]))
    assert [each.offset for each in _done(admin.list_consumer_group_offsets([asked])).topic_partitions] == [1]
    _done(admin.delete_consumer_groups([group]))
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(30).valid]


def test_kafka_python_administers_topics_and_groups(make_topic: Callable[..., str], servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    topic = make_topic()
    LIBRARIES[0].produce(servers, topic, [Message(b"v")] * 3)
    LIBRARIES[0].consume_as_group(servers, topic, 3, group=topic)

    admin.create_topics([KafkaPythonTopic("by-kafka-python", 2, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([KafkaPythonTopic("by-kafka-python", 2, 1)])
    assert {"by-kafka-python", topic} <= set(admin.list_topics())
    admin.delete_topics(["by-kafka-python"])
    assert "by-kafka-python" not in admin.list_topics()
    offsets = admin.list_group_offsets([topic])[topic]
    assert [(part.partition, committed.offset) for part, committed in offsets.items()] == [(0, 3)]
    assert [each["group_state"] for each in admin.list_groups() if each["group_id"] == topic] == ["Empty"]
    admin.close()


def test_aiokafka_administers_topics_and_configurations(topic: str, servers: str) -> None:
    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("by-aiokafka", 2, 1)])
            await admin.create_partitions({"by-aiokafka": AioNewPartitions(3)})
            (described,) = await admin.describe_topics(["by-aiokafka"])
            assert len(described["partitions"]) == 3
            resource = AioConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})
            await admin.alter_configs([resource])
            response = await admin.describe_configs([AioConfigResource(ConfigResourceType.TOPIC, topic)])
            entries = {entry[0]: entry[1] for entry in response[0].resources[0][4]}
            assert entries["retention.ms"] == "60000"
            await admin.delete_topics(["by-aiokafka"])
            assert "by-aiokafka" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(administer())
