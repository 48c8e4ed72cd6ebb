"""What DescribeConfigs tells of brokers, groups and subscriptions, by two brokers of one release."""

from __future__ import annotations

from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body

BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
_DEFAULT = 5
"""The source of a value that nobody set."""
_UNKNOWN = 0
"""The type of a setting that the release does not have, but the broker was given."""


def told(peer: Peer, kind: int, name: str) -> Body:
    """Name to what is said of it but in prose; or the error."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (result,) = peer.ask("DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True})["results"]
    if result["error_code"]:
        return {"error": (result["error_code"], result["error_message"])}
    return {each.pop("name"): {**each, "documentation": None} for each in result["configs"]}


def assert_same_broker_settings(kafka: Peer, odradek: Peer, broker: str = "1") -> None:
    """Of those that either was started with the value is its own; of the others it is the default."""
    theirs, ours = told(kafka, BROKER, broker), told(odradek, BROKER, broker)
    assert ours.keys() == {name for name, each in theirs.items() if each["config_type"] != _UNKNOWN}
    own = {name for each in (theirs, ours) for name in each if name in ours and each[name]["config_source"] != _DEFAULT}
    facts = ("config_type", "is_sensitive", "read_only")
    for name in ours:
        compared = facts if name in own else ours[name].keys()
        assert {key: ours[name][key] for key in compared} == {key: theirs[name][key] for key in compared}, name
