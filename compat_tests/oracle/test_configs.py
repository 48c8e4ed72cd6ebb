"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, and requests that both refuse."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_APPLIED_S = 5.0
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@versions_of("DescribeConfigs")
def test_describe_configs_of_topics(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeConfigs", version)
    pair.create_topic("configured", 1, {"cleanup.policy": "compact", "segment.bytes": "1048576"})

    def ask(name: str, keys: list[str] | None, **more: Any) -> None:
        asked = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": keys}
        pair.ask("DescribeConfigs", version, {"resources": [asked], **more}, _without_documentation)

    ask("configured", ["cleanup.policy", "segment.bytes", "retention.ms", "no.such.config"])
    if version:  # The peer for version 0 is Kafka 3.9, whose topics have settings that 4.x removed.
        ask("configured", None)
        ask("configured", [])
    ask("no-such-topic", None)
    ask("not a name", None)
    if version >= 1:
        ask("configured", ["cleanup.policy", "segment.bytes", "retention.ms"], include_synonyms=True)


def _without_documentation(response: Body) -> Body:
    """Drop the documentation of settings, because our texts are not copies of Kafka's."""
    for result in response["results"]:
        for config in result["configs"] or []:
            config.pop("documentation", None)
    return response


@versions_of("DescribeConfigs")
def test_describe_configs_of_brokers_and_others(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeConfigs", version)
    stable = ["log.segment.bytes", "num.partitions", "message.max.bytes", "ssl.keystore.password"]
    stable += ["node.id", "broker.id"]

    def ask(kind: int, name: str, keys: list[str] | None, **more: Any) -> None:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        pair.ask("DescribeConfigs", version, {"resources": [asked], **more}, _without_documentation)

    ask(_BROKER, "1", stable)
    ask(_BROKER, "", stable)
    ask(_BROKER, "9", stable)
    ask(_BROKER, "one", stable)
    if version:  # Version 0 has no synonyms.
        ask(_BROKER, "1", stable, include_synonyms=True)
    if version:  # The peer for version 0 is Kafka 3.9, which has other settings of groups and of client metrics.
        ask(_GROUP, "some-group", ["consumer.session.timeout.ms"])
        ask(_CLIENT_METRICS, "none", None)
    ask(77, "what", None)


@versions_of("AlterConfigs")
def test_alter_configs_replaces_all_overrides(version: int, pair_for: PairFor) -> None:
    pair = pair_for("AlterConfigs", version)
    name = f"altered-{version}"
    pair.create_topic(name, 1, {"segment.bytes": "1048576"})

    def ask(configs: dict[str, str | None], *, kind: int = _TOPIC, resource: str = name, only: bool = False) -> None:
        entries = [{"name": key, "value": value} for key, value in configs.items()]
        asked = {"resource_type": kind, "resource_name": resource, "configs": entries}
        pair.ask("AlterConfigs", version, {"resources": [asked], "validate_only": only})
        _compare_overrides(pair, name)

    ask({"retention.ms": "1000", "cleanup.policy": "compact"}, only=True)
    ask({"retention.ms": "1000", "cleanup.policy": "compact"})
    ask({"retention.ms": "soon"})
    ask({"no.such.config": "1"})
    ask({"retention.ms": None})
    ask({}, resource="no-such-topic")
    ask({"num.partitions": "3"}, kind=_BROKER, resource="1")
    ask({}, kind=77)
    ask({})


def _compare_overrides(pair: Pair, name: str) -> None:
    """Repeat until both agree: Kafka's broker applies a change a moment after the controller's response."""

    def overrides(response: Body) -> object:
        (result,) = response["results"]
        return sorted((each["name"], each["value"]) for each in result["configs"] if each["config_source"] == 1)

    asked = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}
    end = time.monotonic() + _APPLIED_S
    while True:
        try:
            pair.ask("DescribeConfigs", 4, {"resources": [asked]}, lambda response: {"overrides": overrides(response)})
            return
        except AssertionError:
            if time.monotonic() > end:
                raise


@versions_of("IncrementalAlterConfigs")
def test_incremental_alter_configs(version: int, pair_for: PairFor) -> None:
    pair = pair_for("IncrementalAlterConfigs", version)
    name = f"incremental-{version}"
    pair.create_topic(name)

    def ask(
        *changes: tuple[str, int, str | None], kind: int = _TOPIC, resource: str = name, only: bool = False
    ) -> None:
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        asked = {"resource_type": kind, "resource_name": resource, "configs": configs}
        pair.ask("IncrementalAlterConfigs", version, {"resources": [asked], "validate_only": only})
        _compare_overrides(pair, name)

    ask(("segment.bytes", _SET, "1048576"), only=True)
    ask(("segment.bytes", _SET, "1048576"), ("cleanup.policy", _SET, "delete"))
    ask(("cleanup.policy", _APPEND, "compact"))
    ask(("cleanup.policy", _APPEND, "compact"))
    ask(("cleanup.policy", _SUBTRACT, "delete"))
    ask(("segment.bytes", _DELETE, None))
    ask(("segment.bytes", _DELETE, None))
    ask(("segment.bytes", _APPEND, "1"))
    ask(("segment.bytes", _SET, None))
    ask(("segment.bytes", _SET, "few"))
    ask(("segment.bytes", _SET, "1048576"), ("segment.bytes", _SET, "2097152"))
    ask(("no.such.config", _SET, "1"))
    ask(("retention.ms", _SET, "1"), resource="no-such-topic")
    ask(("retention.ms", _SET, "1"), resource="")
    ask(("retention.ms", _SET, "1"), kind=77)
    ask()


@versions_of("IncrementalAlterConfigs")
def test_incremental_alter_configs_of_brokers(version: int, pair_for: PairFor) -> None:
    pair = pair_for("IncrementalAlterConfigs", version)

    def ask(key: str, operation: int, value: str | None, resource: str = "1") -> None:
        change = {"name": key, "config_operation": operation, "value": value}
        asked = {"resource_type": _BROKER, "resource_name": resource, "configs": [change]}
        pair.ask("IncrementalAlterConfigs", version, {"resources": [asked]})

    ask("log.cleaner.threads", _SET, "2")
    ask("log.cleaner.threads", _DELETE, None)
    ask("log.retention.ms", _SET, "90000000", "")
    ask("log.retention.ms", _DELETE, None, "")
    ask("node.id", _SET, "3")
    ask("log.cleaner.threads", _SET, "many")
    ask("no.such.config", _SET, "1")
    ask("log.cleaner.threads", _SET, "2", "9")


@versions_of("ListConfigResources")
def test_list_config_resources(version: int, pair_for: PairFor) -> None:
    pair = pair_for("ListConfigResources", version)
    pair.create_topic("configured")

    if version == 0:
        pair.ask("ListConfigResources", 0, {})
        return
    for kinds in ([_CLIENT_METRICS], [_GROUP], [_BROKER], [99]):
        pair.ask("ListConfigResources", version, {"resource_types": kinds}, _sorted_resources)
    pair.ask("ListConfigResources", version, {"resource_types": [_TOPIC]}, _only_the_configured)


def _sorted_resources(response: Body) -> Body:
    response["config_resources"].sort(key=lambda each: (each["resource_type"], each["resource_name"]))
    return response


def _only_the_configured(response: Body) -> Body:
    found = [each for each in response["config_resources"] if each["resource_name"] == "configured"]
    return {**response, "config_resources": found}


@versions_of("DescribeAcls")
def test_describe_acls_without_an_authorizer(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeAcls", version)
    any_acl: Body = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    if version:
        any_acl["pattern_type_filter"] = 1

    pair.ask("DescribeAcls", version, {**any_acl, "resource_name_filter": None})


@versions_of("CreateAcls")
def test_create_acls_without_an_authorizer(version: int, pair_for: PairFor) -> None:
    pair = pair_for("CreateAcls", version)
    acl: Body = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
    acl |= {"operation": 3, "permission_type": 3}
    if version:
        acl["resource_pattern_type"] = 3

    for creations in ([acl], [acl, {**acl, "resource_type": 77}], []):
        pair.ask("CreateAcls", version, {"creations": creations})


@versions_of("DeleteAcls")
def test_delete_acls_without_an_authorizer(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DeleteAcls", version)
    any_acl: Body = {"resource_type_filter": 1, "resource_name_filter": None, "operation": 1, "permission_type": 1}
    any_acl |= {"principal_filter": None, "host_filter": None}
    if version:
        any_acl["pattern_type_filter"] = 1

    for filters in ([any_acl], [any_acl, {**any_acl, "principal_filter": "User:a"}], []):
        pair.ask("DeleteAcls", version, {"filters": filters})


@versions_of("DescribeClientQuotas")
def test_describe_client_quotas_without_a_match(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeClientQuotas", version)

    pair.ask("DescribeClientQuotas", version, {"components": [], "strict": False})
    component: Body = {"entity_type": "client-id", "match_type": 0, "match": "someone"}
    pair.ask("DescribeClientQuotas", version, {"components": [component], "strict": True})
    pair.ask("DescribeClientQuotas", version, {"components": [{**component, "entity_type": "planet"}], "strict": True})


@versions_of("DescribeClientQuotas")
def test_describe_client_quotas_with_an_invalid_filter(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeClientQuotas", version)

    def component(entity_type: str, match_type: int, match: str | None) -> Body:
        return {"entity_type": entity_type, "match_type": match_type, "match": match}

    for components in (
        [component("", 0, "someone")],
        [component("user", 0, "someone"), component("user", 1, None)],
        [component("user", 0, None)],
        [component("user", 1, "someone")],
        [component("user", 2, "someone")],
        [component("user", 3, None)],
        [component("ip", 2, None), component("user", 2, None)],
        [component("user", 2, None), component("client-id", 1, None)],
    ):
        pair.ask("DescribeClientQuotas", version, {"components": components, "strict": True})


@versions_of("UpdateFeatures")
def test_update_features(version: int, pair_for: PairFor) -> None:
    pair = pair_for("UpdateFeatures", version)

    def ask(feature: str, level: int, **more: Any) -> None:
        pair.ask(
            "UpdateFeatures",
            version,
            {"timeout_ms": 9000, "feature_updates": [{"feature": feature, "max_version_level": level, **more}]},
        )

    ask("no.such.feature", 1)
    ask("metadata.version", 999)
    ask("metadata.version", 0)
    ask("metadata.version", -1)
    ask("", 1)
    pair.ask("UpdateFeatures", version, {"timeout_ms": 9000, "feature_updates": []})


@versions_of("UpdateFeatures")
def test_update_transaction_version(version: int, pair_for: PairFor) -> None:
    """Downgrade and upgrade transaction.version, with refused requests in between. Version 0 cannot downgrade."""
    pair = pair_for("UpdateFeatures", version)
    up: Body = {} if version == 0 else {"upgrade_type": 1}
    down: Body = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}

    def ask(level: int, how: Body, **more: Any) -> None:
        update = {"feature": "transaction.version", "max_version_level": level, **how}
        pair.ask("UpdateFeatures", version, {"timeout_ms": 9000, "feature_updates": [update], **more})

    def levels(peer: Peer) -> dict[str, int]:
        asked = {"client_software_name": "oracle", "client_software_version": "1"}
        features = peer.ask("ApiVersions", 4, asked)["finalized_features"]
        return {each["name"]: each["max_version_level"] for each in features}

    def agree(level: int | None) -> None:
        """Wait until both brokers list the level."""
        for peer in (pair.kafka, pair.ours):
            deadline = time.monotonic() + 30
            while levels(peer).get("transaction.version") != level:
                assert time.monotonic() < deadline, (peer.name, levels(peer))

    agree(2)
    ask(3, up)
    ask(-1, up)
    ask(1, up)
    ask(2, up)
    ask(2, down)
    if version == 0:
        ask(1, down)
        return agree(2)
    ask(1, down, validate_only=True)
    ask(1, {"upgrade_type": 0})
    ask(1, {"upgrade_type": 4})
    agree(2)
    ask(1, down)
    agree(1)
    ask(2, down)
    ask(0, down)
    agree(None)
    ask(2, up)
    return agree(2)


@versions_of("DescribeQuorum")
def test_describe_quorum(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeQuorum", version)

    def ask(topic: str, partition: int) -> None:
        asked = {"topic_name": topic, "partitions": [{"partition_index": partition}]}
        pair.ask("DescribeQuorum", version, {"topics": [asked]}, _without_directory)

    ask("__cluster_metadata", 0)
    ask("__cluster_metadata", 1)
    ask("no-such-topic", 0)
    pair.ask("DescribeQuorum", version, {"topics": []})


def _without_directory(response: Body) -> Body:
    """Drop the directory ids, which are each broker's own; Kafka's static voters have none."""
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            for replica in partition["current_voters"] + partition["observers"]:
                replica.pop("replica_directory_id", None)
    return {key: value for key, value in response.items() if key != "nodes"}
