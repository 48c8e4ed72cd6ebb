"""Kafka's command-line tools of both releases: they print the same for Odradek as for Kafka."""

import json
import re
from collections.abc import Callable

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools, ToolFailed

from compat_tests.clients import LIBRARIES, Message


@pytest.fixture(params=[KAFKA_4_3, pytest.param(KAFKA_3_9, marks=pytest.mark.long)])
def tools(request: pytest.FixtureRequest) -> JavaTools:
    """The tools of one release."""
    return JavaTools(request.param)


def _fill(servers: str, topic: str, count: int) -> None:
    LIBRARIES[0].produce(servers, topic, [Message(b"%d" % number) for number in range(count)])


def test_kafka_topics_creates_describes_alters_and_deletes(tools: JavaTools, servers: str) -> None:
    name = f"by-tool-{tools.version}"
    bootstrap = ("--bootstrap-server", servers)

    created = tools.run(
        "kafka-topics", *bootstrap, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000"
    )
    assert f"Created topic {name}." in created

    tools.run("kafka-topics", *bootstrap, "--alter", "--topic", name, "--partitions", "3")
    described = tools.run("kafka-topics", *bootstrap, "--describe", "--topic", name).splitlines()
    assert re.search(rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1\s", described[0])
    assert "retention.ms=3600000" in described[0]
    assert [re.findall(r"(?:Partition|Leader|Replicas|Isr): (\S+)", line) for line in described[1:]] == [
        [str(partition), "1", "1", "1"] for partition in range(3)
    ]

    with pytest.raises(ToolFailed, match="already exists"):
        tools.run("kafka-topics", *bootstrap, "--create", "--topic", name)

    tools.run("kafka-topics", *bootstrap, "--delete", "--topic", name)
    assert name not in tools.run("kafka-topics", *bootstrap, "--list").splitlines()


def test_kafka_configs_alters_and_describes_topics_and_brokers(tools: JavaTools, topic: str, servers: str) -> None:
    bootstrap = ("--bootstrap-server", servers)
    entity = ("--entity-type", "topics", "--entity-name", topic)

    changes = "retention.ms=1000000,cleanup.policy=[compact,delete]"
    tools.run("kafka-configs", *bootstrap, *entity, "--alter", "--add-config", changes)
    described = tools.run("kafka-configs", *bootstrap, *entity, "--describe")
    assert "retention.ms=1000000 sensitive=false" in described
    assert "cleanup.policy=compact,delete sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000000" in described

    tools.run("kafka-configs", *bootstrap, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.run("kafka-configs", *bootstrap, *entity, "--describe")

    with pytest.raises(ToolFailed, match=r"Unknown topic config name: no\.such"):
        tools.run("kafka-configs", *bootstrap, *entity, "--alter", "--add-config", "no.such=1")

    broker = ("--entity-type", "brokers", "--entity-name", "1")
    all_configs = tools.run("kafka-configs", *bootstrap, *broker, "--describe", "--all")
    assert "log.segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in (
        all_configs
    )


def test_the_performance_tools_write_and_read_all_their_records(tools: JavaTools, topic: str, servers: str) -> None:
    written = tools.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={servers}",
    )  # fmt: skip
    assert "20000 records sent" in written.splitlines()[-1]

    count = "--num-records" if tools.version.startswith("4.") else "--messages"
    read = tools.run(
        "kafka-consumer-perf-test", "--bootstrap-server", servers, "--topic", topic, count, "20000"
    ).splitlines()
    names, values = (line.split(", ") for line in read[-2:])
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == "20000"


def test_kafka_get_offsets_lists_earliest_and_latest_offsets(
    tools: JavaTools, make_topic: Callable[..., str], servers: str
) -> None:
    topic = make_topic(partitions=2)
    _fill(servers, topic, 5)
    bootstrap = ("--bootstrap-server", servers, "--topic", topic)

    assert tools.run("kafka-get-offsets", *bootstrap).splitlines() == [f"{topic}:0:5", f"{topic}:1:0"]
    assert tools.run("kafka-get-offsets", *bootstrap, "--time", "-2").splitlines() == [f"{topic}:0:0", f"{topic}:1:0"]
    assert tools.run("kafka-get-offsets", *bootstrap, "--time", "-3").splitlines()[0].startswith(f"{topic}:0:")


def test_kafka_log_dirs_lists_every_partition(tools: JavaTools, topic: str, servers: str) -> None:
    _fill(servers, topic, 10)

    output = tools.run("kafka-log-dirs", "--bootstrap-server", servers, "--describe", "--topic-list", topic)

    response = json.loads(output.splitlines()[-1])
    (broker,) = response["brokers"]
    (directory,) = broker["logDirs"]
    (partition,) = directory["partitions"]
    assert (broker["broker"], directory["error"], partition["partition"]) == (1, None, f"{topic}-0")
    assert partition["size"] > 0
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


def test_kafka_delete_records_advances_the_log_start_offset(
    tools: JavaTools, topic: str, servers: str, tmp_path: object
) -> None:
    _fill(servers, topic, 10)
    file = f"{tmp_path}/offsets.json"
    with open(file, "w") as offsets:
        json.dump({"partitions": [{"topic": topic, "partition": 0, "offset": 7}], "version": 1}, offsets)

    output = tools.run("kafka-delete-records", "--bootstrap-server", servers, "--offset-json-file", file)

    assert f"partition: {topic}-0\tlow_watermark: 7" in output
    assert [each.value for each in LIBRARIES[0].consume(servers, topic, 3, offset=7)] == [b"7", b"8", b"9"]
    assert tools.run(
        "kafka-get-offsets", "--bootstrap-server", servers, "--topic", topic, "--time", "-2"
    ).splitlines() == [f"{topic}:0:7"]


def test_kafka_consumer_groups_describes_resets_and_deletes(tools: JavaTools, topic: str, servers: str) -> None:
    group = f"group-{topic}"
    _fill(servers, topic, 10)
    LIBRARIES[0].consume_as_group(servers, topic, 4, group=group)
    bootstrap = ("--bootstrap-server", servers)

    assert group in tools.run("kafka-consumer-groups", *bootstrap, "--list").splitlines()
    described = tools.run("kafka-consumer-groups", *bootstrap, "--describe", "--group", group)
    (line,) = (each.split() for each in described.splitlines() if each.startswith(group))
    assert line[1:6] == [topic, "0", "4", "10", "6"]
    state = tools.run("kafka-consumer-groups", *bootstrap, "--describe", "--group", group, "--state")
    assert "Empty" in state

    tools.run(
        "kafka-consumer-groups", *bootstrap, "--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "8",
        "--execute",
    )  # fmt: skip
    assert [each.value for each in LIBRARIES[0].consume_as_group(servers, topic, 2, group=group)] == [b"8", b"9"]

    removed = tools.run("kafka-consumer-groups", *bootstrap, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in removed
    deleted = tools.run("kafka-consumer-groups", *bootstrap, "--delete", "--group", group)
    assert "was successful" in deleted
    assert group not in tools.run("kafka-consumer-groups", *bootstrap, "--list").splitlines()


def test_kafka_broker_api_versions_knows_every_api(tools: JavaTools, servers: str) -> None:
    output = tools.run("kafka-broker-api-versions", "--bootstrap-server", servers)

    lines = [line.strip() for line in output.splitlines()]
    served = dict(re.findall(r"^(\w+)\(\d+\): (\d+ to \d+|\d+) ", "\n".join(lines), re.MULTILINE))
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "JoinGroup", "OffsetCommit", "CreateTopics"} <= set(served)


def test_the_verifiable_tools_produce_and_consume_every_record(tools: JavaTools, topic: str, servers: str) -> None:
    bootstrap = ("--bootstrap-server", servers, "--topic", topic)
    output = tools.run("kafka-verifiable-producer", *bootstrap, "--max-messages", "1000", "--acks", "-1")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sorted(each["offset"] for each in events if each["name"] == "producer_send_success") == list(range(1000))

    output = tools.run("kafka-verifiable-consumer", *bootstrap, "--group-id", topic, "--max-messages", "1000")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sum(each["count"] for each in events if each["name"] == "records_consumed") == 1000
    assert all(each["success"] for each in events if each["name"] == "offsets_committed")


def test_kafka_features_and_quorum_describe_the_cluster(servers: str, broker_name: str) -> None:
    tools = JavaTools(KAFKA_3_9 if broker_name == "kafka-3.9.1" else KAFKA_4_3)
    features = tools.run("kafka-features", "--bootstrap-server", servers, "describe")
    assert re.search(r"Feature: metadata\.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: \S+", features)

    quorum = tools.run("kafka-metadata-quorum", "--bootstrap-server", servers, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", quorum)


def test_kafka_features_changes_the_version_of_transactions(servers: str, broker_name: str) -> None:
    if broker_name == "kafka-3.9.1":
        pytest.skip("Kafka 3.9 has no feature transaction.version")
    tools, bootstrap = JavaTools(KAFKA_4_3), ("--bootstrap-server", servers)
    lowered = tools.run("kafka-features", *bootstrap, "downgrade", "--feature", "transaction.version=1")
    try:
        assert "transaction.version was downgraded to 1." in lowered
        described = tools.run("kafka-features", *bootstrap, "describe")
        assert re.search(r"transaction\.version\s.*FinalizedVersionLevel: 1\s", described)
    finally:
        raised = tools.run("kafka-features", *bootstrap, "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in raised


def test_the_console_producer_creates_its_topic(tools: JavaTools, servers: str) -> None:
    topic = f"by-writing-{tools.version}"
    tools.run("kafka-console-producer", "--bootstrap-server", servers, "--topic", topic, stdin="one\ntwo\n")

    assert [each.value for each in LIBRARIES[0].consume(servers, topic, 2)] == [b"one", b"two"]


def test_tools_report_an_unknown_topic(tools: JavaTools, servers: str) -> None:
    with pytest.raises(ToolFailed, match="does not exist as expected"):
        tools.run("kafka-topics", "--bootstrap-server", servers, "--describe", "--topic", "no-such-topic")
    with pytest.raises(ToolFailed, match=r"replication factor|Replication factor"):
        tools.run(
            "kafka-topics", "--bootstrap-server", servers, "--create", "--topic", f"too-many-{tools.version}",
            "--replication-factor", "3",
        )  # fmt: skip
