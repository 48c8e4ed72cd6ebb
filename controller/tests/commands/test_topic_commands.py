"""Creating, growing and deleting topics: the texts and codes are those of a running Kafka 4.3.0 with one broker."""

import random
from dataclasses import replace

import pytest
from controller.tests.commands.refused_topics import GROW_REFUSED, REFUSED, SWITCHES, CreatableTopic, grow, topic
from controller.tests.controller_kit import CLUSTER_ID, cluster, context, directory_of, image_of, topics, uuid_of

from odradek_controller.commands.brokers import controlled_shutdown, fence_broker
from odradek_controller.commands.create_partitions import create_partitions
from odradek_controller.commands.create_topics import create_topics
from odradek_controller.commands.delete_topics import delete_topics
from odradek_controller.image import ClusterImage, PartitionRegistration, TopicImage
from odradek_controller.levels import Levels
from odradek_controller.replay import replay
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.uuid import ZERO_UUID, random_uuid

ONE = cluster({1: None})


def with_topics(image: ClusterImage, *wanted: CreatableTopic) -> ClusterImage:
    records, response = create_topics(image, CreateTopicsRequest(topics=list(wanted)), context(seed=7))
    assert [result.error_code for result in response.topics] == [0] * len(wanted)
    return image_of(records, image)


SOME = with_topics(ONE, topic("ok"), topic("a.b"), topic("two", 2))


@pytest.mark.parametrize("name", ["remote.log.delete.on.disable", "remote.log.copy.disable"])
def test_remote_log_switches_are_refused_in_zookeeper_mode(name: str) -> None:
    over_zookeeper = replace(ONE, levels=Levels({}, inter_broker_protocol=21))
    results = []
    for image in (ONE, over_zookeeper):
        for value in ("false", "TRUE"):
            _, response = create_topics(image, CreateTopicsRequest([topic(configs=[(name, value)])]), context())
            results.append((ErrorCode(response.topics[0].error_code).name, response.topics[0].error_message))
    kept, refused = ("NONE", None), ("INVALID_CONFIG", SWITCHES)
    assert results == [kept, kept, kept, refused]


@pytest.mark.parametrize(("wanted", "error", "message"), REFUSED)
def test_an_invalid_topic_is_refused_with_kafkas_message(wanted: CreatableTopic, error: str, message: str) -> None:
    records, response = create_topics(SOME, CreateTopicsRequest(topics=[wanted]), context())
    result = response.topics[0]
    assert (records, ErrorCode(result.error_code).name, result.error_message) == ([], error, message)
    assert (result.name, result.topic_id, result.num_partitions, result.replication_factor, result.configs) == (
        wanted.name,
        ZERO_UUID,
        -1,
        -1,
        [],
    )


def test_the_records_of_a_topic_have_configurations_before_partitions() -> None:
    request = CreateTopicsRequest(topics=[topic("new", 2, 1, configs=[("retention.ms", "1000")])])
    records, response = create_topics(ONE, request, context(seed=3))
    topic_id = random_uuid(random.Random(3).randbytes)
    # The seeded placement draws nothing with one broker, so that the id is the first draw.
    assert records == [
        TopicRecord("new", topic_id),
        ConfigRecord(2, "new", "retention.ms", "1000"),
        *(
            PartitionRecord(index, topic_id, [1], [1], [], [], 1, 0, 0, 0, [directory_of(1)], None, None)
            for index in (0, 1)
        ),
    ]
    result = response.topics[0]
    assert (result.name, result.topic_id, result.error_code, result.num_partitions, result.replication_factor) == (
        "new",
        topic_id,
        0,
        2,
        1,
    )
    assert result.configs is not None
    found = {config.name: (config.value, config.config_source) for config in result.configs}
    assert len(found) == 33
    assert (found["retention.ms"], found["min.insync.replicas"], found["cleanup.policy"]) == (
        ("1000", 1),
        ("1", 3),
        ("delete", 5),
    )


def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    static = context({"num.partitions": "4", "default.replication.factor": "2"})
    image = cluster({1: None, 2: None})
    _, response = create_topics(image, CreateTopicsRequest(topics=[topic("d", -1, -1)]), static)
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (4, 2)


def test_a_repeated_name_is_refused_once_and_the_others_are_created() -> None:
    records, response = create_topics(ONE, topics("dup", "dup", "single"), context())
    assert [(result.name, ErrorCode(result.error_code).name, result.error_message) for result in response.topics] == [
        ("single", "NONE", None),
        ("dup", "INVALID_REQUEST", "Duplicate topic name."),
    ]
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["single"]


def test_validate_only_responds_like_a_creation() -> None:
    request = topics("vo")
    request.validate_only = True
    records, response = create_topics(ONE, request, context())
    assert records == []
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 1)


def test_a_fenced_replica_is_not_in_the_first_isr() -> None:
    image = cluster({1: None, 2: None, 3: None}, fenced=[2])
    after = with_topics(image, topic("t", -1, -1, [(0, [2, 3, 1])]))
    assert after.partition("t", 0) == PartitionRegistration(
        (2, 3, 1), (3, 1), 3, 0, 0, tuple(directory_of(broker) for broker in (2, 3, 1))
    )


def test_a_broker_in_controlled_shutdown_gets_no_new_replica() -> None:
    three = cluster({1: None, 2: None, 3: None})
    shutting_down = image_of(controlled_shutdown(three, 2, context()), three)
    _, refused = create_topics(shutting_down, CreateTopicsRequest(topics=[topic("t", 1, 3)]), context(seed=7))
    assert refused.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    gone = image_of(fence_broker(shutting_down, 2, context()), shutting_down)
    partition = with_topics(gone, topic("t", 1, 3)).partition("t", 0)
    assert partition is not None
    assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [1, 3])


# -- growing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("request_", "error", "message"), GROW_REFUSED)
def test_an_invalid_partition_count_is_refused_with_kafkas_message(
    request_: CreatePartitionsRequest, error: str, message: str | None
) -> None:
    records, response = create_partitions(SOME, request_, context())
    result = response.results[0]
    assert (records, ErrorCode(result.error_code).name, result.error_message) == ([], error, message)


def test_new_partitions_continue_the_placement() -> None:
    records, response = create_partitions(SOME, grow("two", 4, [[1], [1]]), context())
    delta = replay(SOME, records)
    before, after = SOME.topics["two"], delta.image.topics["two"]
    assert response.results[0].error_code == 0
    assert delta.partitions == {before.id: (2, 3)}
    assert after.partitions == before.partitions + before.partitions


# -- deleting ---------------------------------------------------------------------------------------------------------

UNKNOWN_NAME = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."
OK = SOME.topics["ok"].id
State = DeleteTopicsRequest.DeleteTopicState

DELETE_REFUSED = [
    ([State("nope", ZERO_UUID)], ("nope", ZERO_UUID, "UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_NAME)),
    ([State(None, uuid_of(9))], (None, uuid_of(9), "UNKNOWN_TOPIC_ID", UNKNOWN_ID)),
    ([State("ok", OK)], ("ok", OK, "INVALID_REQUEST", "You may not specify both topic name and topic id.")),
    ([State(None, ZERO_UUID)], (None, ZERO_UUID, "INVALID_REQUEST", "Neither topic name nor id were specified.")),
    ([State("ok", ZERO_UUID)] * 2, ("ok", ZERO_UUID, "INVALID_REQUEST", "Duplicate topic name.")),
    ([State(None, OK)] * 2, (None, OK, "INVALID_REQUEST", "Duplicate topic id.")),
    (
        [State("ok", ZERO_UUID), State(None, OK)],
        ("ok", OK, "INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied."),
    ),
]


@pytest.mark.parametrize(("wanted", "expected"), DELETE_REFUSED)
def test_an_invalid_deletion_is_refused_with_kafkas_message(wanted: list[State], expected: tuple[object, ...]) -> None:
    records, response = delete_topics(SOME, DeleteTopicsRequest(topics=wanted), context())
    assert records == []
    assert [(r.name, r.topic_id, ErrorCode(r.error_code).name, r.error_message) for r in response.responses] == [
        expected
    ]


def test_a_deleted_topic_loses_its_configurations() -> None:
    before = with_topics(ONE, topic("gone", configs=[("retention.ms", "5")]), topic("stays"))
    records, response = delete_topics(before, DeleteTopicsRequest(topic_names=["gone", "nope"]), context())
    delta = replay(before, records)
    assert [(r.name, ErrorCode(r.error_code).name) for r in response.responses] == [
        ("gone", "NONE"),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    gone = before.topics["gone"]
    assert delta.deleted_topics == {gone.id: gone}
    assert (list(delta.image.topics), list(delta.image.topics_by_id)) == (["stays"], [before.topics["stays"].id])
    assert delta.image.topic_configs("gone") == {}


def test_no_topic_is_deleted_with_delete_topic_enable_false() -> None:
    static = context({"delete.topic.enable": "false"})
    records, response = delete_topics(SOME, DeleteTopicsRequest(topic_names=["ok"]), static)
    assert (records, response.responses[0].error_code) == ([], ErrorCode.TOPIC_DELETION_DISABLED)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    found = SOME.topics["two"]
    assert isinstance(found, TopicImage)
    assert SOME.topics_by_id[found.id] is found
    assert SOME.partition(found.id, 1) == SOME.partition("two", 1) == found.partitions[1]
    assert SOME.partition("two", 2) is SOME.partition("none", 0) is None
    assert SOME.cluster_id == CLUSTER_ID
