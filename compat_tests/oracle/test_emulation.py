"""What a broker says that it can do: as the release that it emulates, and only what the oracle has asked about."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.oracle import schema
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.schema import Body
from odradek import Cluster

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module", params=["4.3", "3.9"])
def emulated(
    request: pytest.FixtureRequest, kafka_servers: Callable[[str], str], broker_name: str
) -> Iterator[tuple[Peer, Peer]]:
    """A release of Kafka, and ours that is told to look like it."""
    if broker_name != "odradek":
        pytest.skip("only Odradek emulates releases")
    release = {"4.3": schema.KAFKA_4_3, "3.9": schema.KAFKA_3_9}[request.param]
    with Cluster(process=True, emulate=request.param, config={"node.id": "1"}) as cluster:
        kafka, ours = Peer(f"kafka-{release}", kafka_servers(release)), Peer("ours", cluster.bootstrap_servers)
        yield kafka, ours
        kafka.close()
        ours.close()


def _by_key(answer: Body) -> dict[int, tuple[int, int]]:
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}


def _features(answer: Body) -> tuple[object, object]:
    supported = {each["name"]: (each["min_version"], each["max_version"]) for each in answer["supported_features"]}
    finalized = {
        each["name"]: (each["min_version_level"], each["max_version_level"]) for each in answer["finalized_features"]
    }
    return supported, finalized


@versions_of("ApiVersions")
def test_an_emulated_release_lists_that_releases_apis(version: int, emulated: tuple[Peer, Peer]) -> None:
    named: Body = {"client_software_name": "oracle", "client_software_version": "1"} if version >= 3 else {}
    theirs, ours = (peer.ask("ApiVersions", version, named) for peer in emulated)

    assert _by_key(ours) == _by_key(theirs)
    if version >= 3:
        assert _features(ours) == _features(theirs)


def test_every_advertised_api_is_asked_about_by_the_oracle(strict_servers: Callable[[str], str]) -> None:
    peer = Peer("ours", strict_servers(schema.KAFKA_4_3))
    advertised = _by_key(peer.ask("ApiVersions", 0, {}))
    peer.close()
    asked = {
        api
        for file in Path(__file__).parent.glob("test_*.py")
        for api in re.findall(r'versions_of\("(\w+)"', file.read_text())
    }
    keys = {schema.api_key(api): api for api in asked}

    assert set(advertised) <= set(keys), "advertised, and never compared"
    for key, (first, last) in advertised.items():
        spoken = schema.versions(keys[key], schema.KAFKA_4_3), schema.versions(keys[key], schema.KAFKA_3_9)
        assert all(version in spoken[0] or version in spoken[1] for version in range(first, last + 1)), keys[key]
