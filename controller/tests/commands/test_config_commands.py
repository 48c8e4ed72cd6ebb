"""Altering configurations: the texts and codes are those of a running Kafka 4.3.0 whose only broker is 1."""

import pytest
from controller.tests.commands.refused_configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    METRICS,
    REFUSED,
    SET,
    SUBTRACT,
    TOPIC,
    Item,
)
from controller.tests.controller_kit import cluster, context, image_of, topics

from odradek_controller.commands.alter_configs import alter_configs, incremental_alter_configs
from odradek_controller.commands.create_topics import create_topics
from odradek_controller.commands.forget_configs import forget_configs
from odradek_controller.configs.effective import BrokerLayers, ConfigSource
from odradek_controller.configs.table import Resource, definitions
from odradek_controller.image import ClusterImage, ConfigResource
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_configs import AlterConfigsRequest
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

ONE = image_of(create_topics(cluster({1: None}), topics("t"), context())[0], cluster({1: None}))


def alter(
    image: ClusterImage, kind: int, name: str, *items: Item, validate_only: bool = False
) -> tuple[ClusterImage, str, str | None]:
    """Return the image after the change, the error, and its message."""
    configs = [IncrementalAlterConfigsRequest.AlterableConfig(*item) for item in items]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    records, response = incremental_alter_configs(image, request, context())
    result = response.responses[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return image_of(records, image), ErrorCode(result.error_code).name, result.error_message


@pytest.mark.parametrize(("kind", "name", "item", "error", "message"), REFUSED)
def test_an_invalid_configuration_is_refused_with_kafkas_message(
    kind: int, name: str, item: Item, error: str, message: str | None
) -> None:
    image, *answer = alter(ONE, kind, name, item)
    assert (answer, image.configs) == ([error, message], ONE.configs)


@pytest.mark.parametrize(
    ("kind", "name", "item"),
    [
        (TOPIC, "t", ("retention.ms", SET, "1000")),
        (BROKER, "1", ("log.retention.ms", SET, "1000")),
        (BROKER, "", ("log.retention.ms", SET, "2000")),
        (BROKER, "", ("min.insync.replicas", SET, "2")),
        (BROKER, "1", ("foo.bar", SET, "5")),
        (BROKER, "1", ("listener.name.plaintext.ssl.keystore.location", SET, "/nope")),
        (BROKER, "1", ("ssl.client.auth", SET, "required")),
        (BROKER, "1", ("sasl.kerberos.min.time.before.relogin", SET, "1")),
        (BROKER, "1", ("num.network.threads", SET, "1")),
        (BROKER, "1", ("max.connections.per.ip.overrides", SET, "127.0.0.1:3, ::1:4")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        (METRICS, "m", ("interval.ms", SET, "50000")),
    ],
)
def test_a_valid_configuration_is_stored(kind: int, name: str, item: Item) -> None:
    image, error, message = alter(ONE, kind, name, item)
    assert (error, message) == ("NONE", None)
    assert image.configs == {
        **ONE.configs,
        ConfigResource(kind, name): {**ONE.configs.get(ConfigResource(kind, name), {}), item[0]: item[2]},
    }


def test_deleting_an_unset_configuration_is_no_error() -> None:
    for kind, name, key in ((TOPIC, "t", "nope"), (BROKER, "1", "node.id"), (TOPIC, "t", "retention.ms")):
        image, error, _ = alter(ONE, kind, name, (key, DELETE, None))
        assert (error, image.configs) == ("NONE", ONE.configs)


def test_append_and_subtract_start_from_the_inherited_value() -> None:
    image, _, _ = alter(ONE, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert image.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    image, _, _ = alter(image, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert image.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    image, _, _ = alter(image, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert image.topic_configs("t") == {"cleanup.policy": "compact"}
    image, error, _ = alter(image, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"))
    assert (error, image.topic_configs("t")) == ("NONE", {"cleanup.policy": ""})


def test_all_changes_of_a_resource_succeed_or_none() -> None:
    image, error, _ = alter(ONE, TOPIC, "t", ("min.insync.replicas", SET, "2"), ("retention.ms", SET, "x"))
    assert (error, image.topic_configs("t")) == ("INVALID_CONFIG", {})
    image, error, message = alter(ONE, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert (error, message) == ("INVALID_REQUEST", "Error due to duplicate config keys")


def test_new_values_are_validated_with_existing_ones() -> None:
    image, _, _ = alter(ONE, TOPIC, "t", ("max.compaction.lag.ms", SET, "5"))
    _, error, message = alter(image, TOPIC, "t", ("min.compaction.lag.ms", SET, "10"))
    assert (error, message) == (
        "INVALID_CONFIG",
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    )


def test_validate_only_changes_nothing() -> None:
    image, error, _ = alter(ONE, TOPIC, "t", ("retention.ms", SET, "9"), validate_only=True)
    assert (error, image.configs) == ("NONE", ONE.configs)


def test_a_resource_named_twice_is_refused_twice() -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", SET, "1")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, "t", [config])
    records, response = incremental_alter_configs(ONE, IncrementalAlterConfigsRequest([resource] * 2), context())
    assert records == []
    assert [(r.error_code, r.error_message) for r in response.responses] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2


def test_an_unknown_operation_is_refused() -> None:
    image, *answer = alter(ONE, TOPIC, "t", ("retention.ms", 4, "1"))
    message = "Unknown operation 4 on retention.ms, expected 0 (SET) to 3 (SUBTRACT)."
    assert (answer, image.configs) == (["INVALID_REQUEST", message], ONE.configs)


def test_the_old_request_replaces_all_overrides_of_a_resource() -> None:
    before, _, _ = alter(ONE, TOPIC, "t", ("retention.ms", SET, "1"), ("flush.ms", SET, "2"))
    wanted = AlterConfigsRequest.AlterableConfig("retention.ms", "3")
    request = AlterConfigsRequest([AlterConfigsRequest.AlterConfigsResource(TOPIC, "t", [wanted])])
    records, response = alter_configs(before, request, context())
    assert response.responses[0].error_code == 0
    assert image_of(records, before).topic_configs("t") == {"retention.ms": "3"}


def test_a_reset_keeps_topic_configurations_and_the_initial_min_isr() -> None:
    image, _, _ = alter(ONE, TOPIC, "t", ("retention.ms", SET, "1"))
    as_new = image.configs
    for kind, name, item in (
        (BROKER, "", ("log.retention.ms", SET, "1")),
        (BROKER, "", ("min.insync.replicas", SET, "2")),
        (BROKER, "1", ("log.retention.ms", SET, "2")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        (METRICS, "m", ("interval.ms", SET, "1000")),
    ):
        image, error, message = alter(image, kind, name, item)
        assert error == "NONE", message
    # A configuration of an unknown broker, as a copied directory may have it.
    image = image_of([ConfigRecord(BROKER, "7", "log.retention.ms", "3")], image)
    image = image_of(forget_configs(image, context()), image)
    assert image.configs == as_new
    assert forget_configs(image, context()) == []


# -- layers -----------------------------------------------------------------------------------------------------------


def described(layers: BrokerLayers, name: str, overrides: dict[str, str] | None = None) -> tuple[object, ...]:
    entry = layers.topic(definitions(Resource.TOPIC)[name], overrides or {})
    return entry.value, int(entry.source), [tuple(synonym) for synonym in entry.synonyms]


def test_a_topics_value_is_that_of_the_strongest_layer() -> None:
    layers = BrokerLayers({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.hours": "3"})
    below = [
        ("log.retention.ms", "1", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "3", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    top = ("retention.ms", "0", ConfigSource.TOPIC)
    assert described(layers, "retention.ms", {"retention.ms": "0"}) == ("0", 1, [top, *below])
    assert described(layers, "retention.ms") == ("1", 2, below)


def test_a_default_is_named_only_if_it_has_the_first_name_as_in_kafka() -> None:
    plain = BrokerLayers()
    assert described(plain, "retention.ms") == ("604800000", 5, [])
    assert described(BrokerLayers(static={"log.retention.hours": "1"}), "retention.ms") == ("3600000", 5, [])
    assert described(plain, "remote.storage.enable") == ("false", 5, [])
    assert described(plain, "cleanup.policy") == ("delete", 5, [("log.cleanup.policy", "delete", 5)])
    assert plain.broker("log.roll.ms") == ("log.roll.ms", None, 5, (), 5)
    assert plain.broker("log.retention.hours").synonyms == (("log.retention.hours", "168", 5),)
    group = definitions(Resource.GROUP)
    assert plain.group(group["share.auto.offset.reset"]).synonyms == (("share.auto.offset.reset", "latest", 5),)
    assert plain.group(group["streams.num.standby.replicas"]).synonyms == (
        ("group.streams.num.standby.replicas", "0", 5),
    )


def test_hours_and_minutes_are_converted_to_milliseconds() -> None:
    assert BrokerLayers().topic_values()["retention.ms"] == "604800000"
    assert BrokerLayers(static={"log.retention.minutes": "2"}).topic_values()["retention.ms"] == "120000"
    assert BrokerLayers(static={"log.retention.hours": "-1"}).topic_values()["retention.ms"] == "-1"
    assert BrokerLayers(static={"log.roll.hours": "1"}).value("log.roll.ms") == "3600000"
