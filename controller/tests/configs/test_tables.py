"""The table of configurations against facts taken from running brokers and from the ConfigDefs of both releases."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek_controller.configs.definition import InvalidConfigError, Mode, Type
from odradek_controller.configs.in_use import IN_USE
from odradek_controller.configs.removed import why_removed
from odradek_controller.configs.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS
from odradek_controller.configs.table import Release, Resource, definitions, nearest, parse, update_mode, validate
from odradek_controller.configs.valid import java_text

FACTS = Path(__file__).parents[1] / "facts"
RELEASES = {"3.9.1": Release.KAFKA_3_9, "4.3.0": Release.KAFKA_4_3}
KINDS = {
    "topic": Resource.TOPIC,
    "broker": Resource.BROKER,
    "group": Resource.GROUP,
    "client-metrics": Resource.CLIENT_METRICS,
}
# Set by a plug-in of Kafka's own start script, not a definition: the running broker lists it with an unknown type.
NOT_DEFINED = {"group.share.enable"}


def load(name: str) -> Any:
    return json.loads((FACTS / name).read_text())


@pytest.mark.parametrize("version", RELEASES)
def test_every_described_configuration_has_kafkas_type_default_and_flags(version: str) -> None:
    facts = load(f"configs-{version}.json")
    for kind, rows in facts.items():
        ours = {
            row.name: (row.type.name.lower(), row.default, row.sensitive)
            for row in definitions(KINDS[kind], RELEASES[version]).values()
            if not row.internal
        }
        known = [row for row in rows if not (row["name"] in NOT_DEFINED and row["type"] == "unknown")]
        assert ours == {row["name"]: (row["type"], row["default"], row.get("sensitive", False)) for row in known}


@pytest.mark.parametrize("version", RELEASES)
def test_update_modes_of_broker_configurations_are_kafkas(version: str) -> None:
    rows = definitions(Resource.BROKER, RELEASES[version])
    changed = {name: row.mode.value for name, row in rows.items() if row.mode is not Mode.READ_ONLY}
    assert changed == load(f"config-modes-{version}.json")
    read_only = {row["name"] for row in load(f"configs-{version}.json")["broker"] if row.get("read_only")}
    assert {name for name, row in rows.items() if row.mode is Mode.READ_ONLY and not row.internal} == (
        read_only - NOT_DEFINED
    )


@pytest.mark.parametrize("version", RELEASES)
def test_topic_configurations_have_kafkas_synonyms(version: str) -> None:
    for kind, table in (("topic", TOPIC_SYNONYMS), ("group", GROUP_SYNONYMS)):
        for row in load(f"configs-{version}.json").get(kind, []):
            if "synonyms" in row:
                assert [name for name, _ in table[row["name"]]] == row["synonyms"]


@pytest.mark.parametrize("version", RELEASES)
def test_values_parse_or_are_refused_with_kafkas_message(version: str) -> None:
    differences = []
    for key, answers in load(f"config-values-{version}.json").items():
        kind, name = key.split("/")
        definition = definitions(KINDS[kind], RELEASES[version])[name]
        for text, expected in answers.items():
            try:
                value = parse(definition, text)
                ours: Any = ",".join(value) if isinstance(value, list) else java_text(value)
                if definition.type is Type.PASSWORD:
                    ours = expected  # Kafka prints a mask
            except InvalidConfigError as error:
                ours = {"error": str(error)}
            if ours != expected:
                differences.append((key, text, ours, expected))
    assert differences == []


def test_an_unknown_name_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"Unknown topic configuration 'retenion.ms'; did you mean 'retention.ms'\?"
    ):
        validate(Resource.TOPIC, "retenion.ms", "1")
    assert nearest(Resource.BROKER, "AUTO_CREATE_TOPICS_ENABLE") == "auto.create.topics.enable"
    assert nearest(Resource.BROKER, "xyzzy") is None


def test_every_name_that_kafka_4_dropped_has_a_reason() -> None:
    dropped = definitions(Resource.BROKER, Release.KAFKA_3_9).keys() - definitions(Resource.BROKER).keys()
    assert {name: why_removed(name) for name in dropped if why_removed(name) is None} == {}
    assert {name for name in definitions(Resource.BROKER) if why_removed(name) is not None} == set()


def test_every_configuration_in_use_is_defined() -> None:
    defined = {name for release in RELEASES.values() for name in definitions(Resource.BROKER, release)}
    assert IN_USE - defined == {"cluster.id"}


def test_a_listeners_own_configuration_can_be_changed_per_broker() -> None:
    assert update_mode("listener.name.external.ssl.keystore.location") is Mode.PER_BROKER
    assert update_mode("node.id") is Mode.READ_ONLY
    assert update_mode("my.plugin.setting") is Mode.CLUSTER_WIDE
