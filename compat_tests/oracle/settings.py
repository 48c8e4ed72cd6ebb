"""Comparisons of two brokers' configurations: DescribeConfigs of brokers, groups and subscriptions, and the responses
to every change of a broker's configuration."""

from __future__ import annotations

from collections.abc import Iterator

from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body

SETTINGS = {
    # A test can open a transaction in a log without a coordinator.
    "transaction.partition.verification.enable": "false",
    # The coordinator aborts a timed-out transaction soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "4",
}
"""The configuration of the brokers of the oracle tests, beside the common one of all tests."""
SHARE_GROUP_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""The share groups' configuration, which `ApacheKafka` sets for every Kafka."""
BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
_DEFAULT = 5
"""The source of a default value."""
_UNKNOWN = 0
"""The type of a configuration that is in the broker's properties, but that the release does not define."""


def describe_configs(peer: Peer, kind: int, name: str) -> Body:
    """Return the result of DescribeConfigs by name, without documentation, or the error."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (result,) = peer.ask("DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True})["results"]
    if result["error_code"]:
        return {"error": (result["error_code"], result["error_message"])}
    return {each.pop("name"): {**each, "documentation": None} for each in result["configs"]}


def assert_same_broker_settings(kafka: Peer, odradek: Peer, broker: str = "1") -> None:
    """Compare all configurations; without the values of those that either broker was started with."""
    theirs, ours = describe_configs(kafka, BROKER, broker), describe_configs(odradek, BROKER, broker)
    assert ours.keys() == {name for name, each in theirs.items() if each["config_type"] != _UNKNOWN}
    own = {name for each in (theirs, ours) for name in each if name in ours and each[name]["config_source"] != _DEFAULT}
    facts = ("config_type", "is_sensitive", "read_only")
    for name in ours:
        compared = facts if name in own else ours[name].keys()
        assert {key: ours[name][key] for key in compared} == {key: theirs[name][key] for key in compared}, name


# -- static configurations, where both brokers are given the same ------------------------------------------------------

_PROCESS_SETTINGS = frozenset(
    (
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "process.roles",
    )
)
"""Settings that the launcher of each broker chooses: addresses, directories, and roles, which only Kafka's has."""
_DYNAMIC = (2, 3)
"""The sources of values that another test may have left."""


def _static(describe_configs: Body) -> Body:
    """Return a broker's configurations without the dynamic ones."""
    settings = {}
    for name, each in describe_configs.items():
        synonyms = [word for word in each["synonyms"] if word["source"] not in _DYNAMIC]
        if synonyms != each["synonyms"]:
            top = synonyms[0] if synonyms else {"value": None, "source": _DEFAULT}
            each = {**each, "value": top["value"], "config_source": top["source"], "synonyms": synonyms}
        settings[name] = each
    return settings


def assert_same_static_settings(kafka: Peer, odradek: Peer, broker: str = "1") -> None:
    """Compare value, source, synonyms, type and flags of each, for brokers with the same static configuration."""
    theirs, ours = (_static(describe_configs(peer, BROKER, broker)) for peer in (kafka, odradek))
    compared = ours.keys() - _PROCESS_SETTINGS
    differ = {name: (theirs.get(name), ours[name]) for name in compared if theirs.get(name) != ours[name]}
    assert not differ, differ


# -- changes -----------------------------------------------------------------------------------------------------------

_SAMPLES = {1: "true", 2: "x", 3: "1", 4: "1", 5: "1", 6: "0.5", 7: "x", 8: "org.example.Missing", 9: "x"}
"""A sample value by type, for a configuration without a value."""
_NUMBERS = (3, 4, 5, 6)
_NOT_VALIDATED = {
    "advertised.listeners": "a running broker does not change its listeners",
    "cordoned.log.dirs": "no log directory is cordoned",
    "listener.security.protocol.map": "a running broker does not change its listeners",
    "listeners": "a running broker does not change its listeners",
}
"""Configurations whose values only Kafka validates, with the reason. They are compared if Kafka accepts the value."""


def _values(each: Body) -> Iterator[str]:
    """Yield values to try: the present one, a valid and an invalid one, and for numbers the limits."""
    sample = _SAMPLES[each["config_type"]]
    current = each["value"] or sample
    yield current
    if each["read_only"]:
        return
    yield from (sample, "not a value", "")
    if each["config_type"] in _NUMBERS:
        whole = int(float(current))
        yield from ("-2", "-1", "0", "1", str(whole // 2), str(2 * whole), str(2 * whole + 1), "0.5", "99999999999")


def _error_of(peer: Peer, api: str, broker: str, name: str, value: str) -> tuple[int, bool]:
    """Return the error code, and whether there is a message."""
    change: Body = {"name": name, "value": value}
    if api == "IncrementalAlterConfigs":
        change |= {"config_operation": 0}
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": [change]}
    (result,) = peer.ask(api, 1, {"resources": [resource], "validate_only": True})["responses"]
    return result["error_code"], bool(result["error_message"])


def assert_same_responses_to_changes(kafka: Peer, odradek: Peer, broker: str = "1") -> None:
    """Compare the responses to a change of each configuration, for one broker and for all, by both APIs (validate
    only)."""
    theirs, ours = describe_configs(kafka, BROKER, broker), describe_configs(odradek, BROKER, broker)
    differ = []
    for name in sorted(ours):
        for value in dict.fromkeys(_values(theirs[name])):
            for scope in (broker, ""):
                for api in ("IncrementalAlterConfigs", "AlterConfigs"):
                    expected = _error_of(kafka, api, scope, name, value)
                    if expected[0] and name in _NOT_VALIDATED:
                        continue
                    response = _error_of(odradek, api, scope, name, value)
                    if response != expected:
                        differ.append((api, scope, name, value, expected, response))
    assert not differ, differ
