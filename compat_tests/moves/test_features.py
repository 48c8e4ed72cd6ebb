"""Finalized features of a directory that passes between Kafka 4.3 and Odradek: each owner lists the features that it
supports, and keeps the levels that the other owner stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from compat_tests.moves.site import End, Owner, Site
from compat_tests.oracle import schema
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers

_FIRST_API = {
    "group.version": "ConsumerGroupHeartbeat",
    "share.version": "ShareGroupHeartbeat",
    "streams.version": "StreamsGroupHeartbeat",
}
"""Features that announce a protocol to clients, with the API that a client calls first."""
_UPGRADE = 1


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, None)
    try:
        yield found
    finally:
        found.close()


def _ask(site: Site, api: str, version: int, body: Body) -> Body:
    peer = Peer("owner", site.bootstrap_servers)
    try:
        return peer.ask(api, version, body)
    finally:
        peer.close()


def _levels(site: Site) -> dict[str, int]:
    """Return the finalized levels by feature, and assert that the broker advertises the APIs of their protocols."""
    response = _ask(site, "ApiVersions", 4, {"client_software_name": "moves", "client_software_version": "1"})
    levels = {each["name"]: each["max_version_level"] for each in response["finalized_features"]}
    advertised = {each["api_key"] for each in response["api_keys"]}
    announced = {schema.api_key(_FIRST_API[name]) for name in levels if name in _FIRST_API}
    assert announced <= advertised
    return levels


def _levels_under(site: Site, owner: Owner, end: End = "stop", upgrade: Iterable[str] = ()) -> dict[str, int]:
    """Return the levels that this owner lists; then upgrade features to level 1 and end the owner."""
    site.start(owner)
    levels = _levels(site)
    if upgrade:
        updates = [{"feature": name, "max_version_level": 1, "upgrade_type": _UPGRADE} for name in upgrade]
        response = _ask(site, "UpdateFeatures", 2, {"timeout_ms": 30_000, "feature_updates": updates})
        assert response["error_code"] == 0, response
    site.end(end)
    return levels


def test_feature_levels_that_kafka_stored_survive_odradek(site: Site) -> None:
    kafkas = _levels_under(site, "kafka")
    assert kafkas.keys() >= _FIRST_API.keys()
    ours = _levels_under(site, "odradek", "kill")
    assert ours == {name: level for name, level in kafkas.items() if name in ours}
    assert ours.keys() >= kafkas.keys() - _FIRST_API.keys()
    assert _levels_under(site, "kafka") == kafkas


def test_kafka_finalizes_its_features_in_odradeks_directory(site: Site) -> None:
    ours = _levels_under(site, "odradek")
    assert _levels_under(site, "kafka", "kill", upgrade=_FIRST_API) == ours
    assert _levels_under(site, "odradek") == ours
    assert _levels_under(site, "kafka") == {**ours, **dict.fromkeys(_FIRST_API, 1)}
