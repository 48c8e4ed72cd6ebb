"""The APIs, features and settings that a broker lists are those of the release that it emulates.

Odradek refuses an API that the emulated release advertises and Odradek does not serve, with the same error response
that Kafka builds for the request.
"""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek_peers import KAFKA_4_0, ApacheKafka, libs

from compat_tests.brokers import COMMON_CONFIG
from compat_tests.oracle import schema
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body
from compat_tests.oracle.settings import (
    CLIENT_METRICS,
    GROUP,
    SETTINGS,
    SHARE_GROUP_SETTINGS,
    assert_same_broker_settings,
    assert_same_responses_to_changes,
    assert_same_static_settings,
    describe_configs,
)
from odradek import Cluster

pytestmark = pytest.mark.peers
_SET, _DELETE = 0, 1
_API_OF_FEATURE = {
    "group.version": "ConsumerGroupHeartbeat",
    "share.version": "ShareGroupHeartbeat",
    "streams.version": "StreamsGroupHeartbeat",
}
"""Features that announce a protocol to clients."""


# Each with the release whose message definitions apply: all messages of 4.0 are in 4.3.
_RELEASES = {
    "4.3": (schema.KAFKA_4_3, schema.KAFKA_4_3),
    "4.0": (KAFKA_4_0, schema.KAFKA_4_3),
    "3.9": (schema.KAFKA_3_9, schema.KAFKA_3_9),
}


@pytest.fixture(scope="module", params=list(_RELEASES))
def emulation(request: pytest.FixtureRequest, broker_name: str) -> str:
    """A release that Odradek emulates."""
    if broker_name != "odradek":
        pytest.skip("only Odradek emulates releases")
    return str(request.param)


@pytest.fixture(scope="module")
def ours(emulation: str) -> Iterator[Peer]:
    """Odradek, emulating that release."""
    config = {"node.id": "1", **COMMON_CONFIG, **SETTINGS, **SHARE_GROUP_SETTINGS}
    with Cluster(process=True, emulate=emulation, config=config) as cluster:
        peer = Peer("ours", cluster.bootstrap_servers)
        yield peer
        peer.close()


@pytest.fixture(scope="module")
def theirs(emulation: str, kafka_servers: Callable[[str], str]) -> Iterator[Peer]:
    """Kafka of that release in KRaft mode, as a combined broker and controller."""
    release, _ = _RELEASES[emulation]
    with contextlib.ExitStack() as own:
        if release == KAFKA_4_0:  # no other test uses this release
            servers = own.enter_context(ApacheKafka(release, config=COMMON_CONFIG)).bootstrap_servers
        else:
            servers = kafka_servers(release)
        peer = Peer(f"kafka-{release}", servers)
        yield peer
        peer.close()


def _by_key(response: Body) -> dict[int, tuple[int, int]]:
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in response["api_keys"]}


def _apis(release: str) -> list[str]:
    facts = schema.facts(release)
    return [name.removesuffix("Request") for name, message in facts.items() if message["kind"] == "request"]


def _filled(api: str, version: int, release: str) -> Body:
    """Return a request with two elements in every array and a distinct value in every field, if the type allows."""
    message = schema.facts(release)[f"{api}Request"]
    structs, made = message.get("structs", {}), 0

    def struct(fields: list[dict[str, Any]]) -> Body:
        return {
            schema.snake(field["name"]): value(field, field["type"])
            for field in fields
            if version in schema.span(field.get("versions", "0+"))
        }

    def value(field: dict[str, Any], kind: str) -> Any:
        nonlocal made
        made += 1
        if kind.startswith("[]"):
            return [value(field, kind[2:]) for _ in range(2)]
        simple = {"string": f"s{made}", "bytes": b"b", "records": None, "uuid": bytes([made]) * 16, "int8": 1}
        if kind in simple:
            return simple[kind]
        if kind.startswith(("int", "uint", "bool", "float")):
            return made
        return struct(field["fields"] if "fields" in field else structs[kind]["fields"])

    return struct(message["fields"])


def _kafkas_error_responses(release: str, asked: list[tuple[str, int, bytes]]) -> list[bytes]:
    lines = "".join(f"{schema.api_key(api)} {version} {body.hex()}\n" for api, version, body in asked)
    command = ["java", "-cp", f"{libs(release)}/*", str(Path(__file__).with_name("ErrorResponses.java"))]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(line) for line in done.stdout.split()]


def _comparable(value: Any) -> Any:
    """Drop error messages, which are each broker's own, and sort arrays, because Kafka's order may be a hash map's."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items() if name != "error_message"}
    if isinstance(value, list):
        return sorted((_comparable(each) for each in value), key=str)
    return value


@pytest.fixture(scope="module")
def unserved(strict_servers: Callable[[str], str]) -> set[str]:
    """The APIs of 4.3 that Odradek does not serve: without emulation it advertises only the served ones."""
    union = Peer("ours without emulation", strict_servers(schema.KAFKA_4_3))
    served = _by_key(union.ask("ApiVersions", 0, {}))
    union.close()
    return {name for name in _apis(schema.KAFKA_4_3) if schema.api_key(name) not in served}


@versions_of("ApiVersions")
def test_an_emulated_release_lists_its_api_versions(version: int, theirs: Peer, ours: Peer, unserved: set[str]) -> None:
    named: Body = {"client_software_name": "oracle", "client_software_version": "1"} if version >= 3 else {}
    kafka, odradek = (peer.ask("ApiVersions", version, named) for peer in (theirs, ours))

    # Kafka has the protocols of all groups; Odradek lists the features of those that it serves.
    for which in ("supported_features", "finalized_features"):
        if which in kafka:
            kafka[which] = [each for each in kafka[which] if _API_OF_FEATURE.get(each["name"]) not in unserved]
    # The epoch of the features is an offset of the metadata log.
    kafkas_epoch, our_epoch = kafka.pop("finalized_features_epoch", 0), odradek.pop("finalized_features_epoch", 0)
    assert (kafkas_epoch >= 0, our_epoch >= 0) == (True, True)
    assert _comparable(odradek) == _comparable(kafka)


def test_topics_have_the_settings_and_defaults_of_the_release(theirs: Peer, ours: Peer) -> None:
    """Both CreateTopics and DescribeConfigs return them."""
    settings = []
    for peer in (theirs, ours):
        topic = {"name": "plain", "num_partitions": 1, "replication_factor": 1}
        created = peer.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000})["topics"][0]
        resource = {"resource_type": 2, "resource_name": "plain", "configuration_keys": None}
        described: Body = {"configs": None}
        while not described["configs"]:  # Kafka's broker learns of the topic a moment later
            (described,) = peer.ask("DescribeConfigs", 4, {"resources": [resource]})["results"]
        settings.append(
            [{each["name"]: each["value"] for each in response["configs"]} for response in (created, described)]
        )
    assert settings[1] == settings[0]


@pytest.fixture
def has_own_settings(emulation: str) -> None:
    if emulation == "4.0":
        pytest.skip("--emulate 4.0 has the settings of 4.3")


@pytest.mark.usefixtures("has_own_settings")
def test_brokers_have_the_settings_of_the_release(theirs: Peer, ours: Peer) -> None:
    assert_same_broker_settings(theirs, ours)


@pytest.mark.usefixtures("has_own_settings")
def test_broker_settings_have_kafkas_values_and_sources(theirs: Peer, ours: Peer) -> None:
    assert_same_static_settings(theirs, ours)


@pytest.mark.usefixtures("has_own_settings")
def test_changes_of_broker_settings_have_kafkas_outcome(theirs: Peer, ours: Peer) -> None:
    assert_same_responses_to_changes(theirs, ours)


@pytest.mark.usefixtures("has_own_settings")
def test_groups_and_subscriptions_have_the_settings_of_the_release(theirs: Peer, ours: Peer) -> None:
    """Both list a dynamic value after it is set, and the default after it is deleted."""
    wanted = ((CLIENT_METRICS, "m", "interval.ms", "1000"), (GROUP, "g", "consumer.session.timeout.ms", "50000"))

    def agree() -> None:
        for kind, name in ((CLIENT_METRICS, "m"), (CLIENT_METRICS, "none"), (GROUP, "g"), (77, "what")):
            deadline = time.monotonic() + 30
            while describe_configs(ours, kind, name) != (
                expected := describe_configs(theirs, kind, name)
            ):  # Kafka's broker is a moment later
                assert time.monotonic() < deadline, (kind, name, describe_configs(ours, kind, name), expected)

    for operation in (_SET, _DELETE):
        for kind, name, setting, value in wanted:
            change = {"name": setting, "config_operation": operation, "value": value if operation == _SET else None}
            resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
            asked = {"resources": [resource], "validate_only": False}
            assert ours.ask("IncrementalAlterConfigs", 1, asked) == theirs.ask("IncrementalAlterConfigs", 1, asked)
        agree()


def test_advertised_apis_that_are_not_served_fail_as_in_kafka(
    emulation: str, ours: Peer, strict_servers: Callable[[str], str]
) -> None:
    _, release = _RELEASES[emulation]
    union = Peer("ours without emulation", strict_servers(schema.KAFKA_4_3))
    served = _by_key(union.ask("ApiVersions", 0, {}))
    union.close()
    apis = {schema.api_key(name): name for name in _apis(release)}

    def request(api: str, version: int) -> bytes:
        return schema.encode(f"{api}Request", version, _filled(api, version, release), release)

    asked = [
        (apis[key], version, request(apis[key], version))
        for key, (first, last) in _by_key(ours.ask("ApiVersions", 0, {})).items()
        if key not in served
        for version in range(first, last + 1)
    ]
    assert asked

    for (api, version, body), kafkas in zip(asked, _kafkas_error_responses(release, asked), strict=True):
        # One connection for all of them: it stays open.
        odradeks = ours.ask_bytes(api, version, body)
        expected, response = (schema.decode(f"{api}Response", version, data, release) for data in (kafkas, odradeks))
        if api == "CreateDelegationToken":  # the error response names an anonymous owner
            expected, response = ({"error_code": each["error_code"]} for each in (expected, response))
        assert _comparable(response) == _comparable(expected), (api, version)


def test_the_oracle_compares_every_advertised_api(strict_servers: Callable[[str], str]) -> None:
    peer = Peer("ours", strict_servers(schema.KAFKA_4_3))
    advertised = _by_key(peer.ask("ApiVersions", 0, {}))
    peer.close()
    asked = {
        api
        for file in Path(__file__).parent.glob("test_*.py")
        for api in re.findall(r'versions_of\("(\w+)"', file.read_text())
    }
    keys = {schema.api_key(api): api for api in asked}

    assert set(advertised) <= set(keys), "advertised APIs without a comparison"
    for key, (first, last) in advertised.items():
        spoken = schema.versions(keys[key], schema.KAFKA_4_3), schema.versions(keys[key], schema.KAFKA_3_9)
        assert all(version in spoken[0] or version in spoken[1] for version in range(first, last + 1)), keys[key]
