"""The brokers of the oracle tests: Kafka 4.3.0 and 3.9.1, and the broker under test with strict validation."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from odradek_peers import ApacheKafka

from compat_tests.brokers import COMMON_CONFIG, Broker, new_broker
from compat_tests.oracle import schema
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.settings import SETTINGS
from compat_tests.oracle.transactional_client import NEWEST_LEVEL, finalize, verify_partitions

STRICT = {"odradek": {"odradek.validation": "strict"}}


@pytest.fixture(scope="session")
def kafka_servers() -> Iterator[Callable[[str], str]]:
    """A function that returns the address of Kafka of a release, started at first use."""
    started: list[ApacheKafka] = []

    @cache
    def start(release: str) -> str:
        started.append(ApacheKafka(release, config={**COMMON_CONFIG, **SETTINGS}))
        return started[-1].start().bootstrap_servers

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="session")
def strict_servers(broker_name: str) -> Iterator[Callable[[str], str]]:
    """A function that returns the address of a broker under test, which validates records as strictly as Kafka.

    Each release of Kafka has its own broker beside it, so that both have received the same requests since their start.
    """
    started: list[Broker] = []

    @cache
    def start(release: str) -> str:
        started.append(new_broker(broker_name, {**SETTINGS, **STRICT.get(broker_name, {})}))
        started[-1].start()
        return started[-1].bootstrap_servers

    yield start
    for each in started:
        each.close()


@pytest.fixture
def pair_for(
    kafka_servers: Callable[[str], str], strict_servers: Callable[[str], str], broker_name: str
) -> Iterator[Callable[[str, int], Pair]]:
    """A function that returns the pair for a version of an API: Kafka's newest release with it, and our broker."""
    peers: list[Peer] = []

    def connect(api: str, version: int) -> Pair:
        release = schema.release_for(api, version)
        if broker_name.startswith("kafka-") and version not in schema.versions(api, broker_name.removeprefix("kafka-")):
            pytest.skip(f"{broker_name} does not speak {api} {version}")
        kafka, ours = Peer(f"kafka-{release}", kafka_servers(release)), Peer("ours", strict_servers(release))
        peers.extend((kafka, ours))
        return Pair(kafka, ours)

    yield connect
    for peer in peers:
        peer.close()


@pytest.fixture(scope="module", params=(2, 1, 0), ids=lambda level: f"version-{level}")
def level(
    request: pytest.FixtureRequest,
    kafka_servers: Callable[[str], str],
    strict_servers: Callable[[str], str],
    broker_name: str,
) -> Iterator[int]:
    """The finalized transaction.version of both brokers, which verify partitions with the transaction coordinator."""
    if broker_name == f"kafka-{schema.KAFKA_3_9}":
        pytest.skip(f"{broker_name} has no feature transaction.version")
    peers = [Peer(find.__name__, find(schema.KAFKA_4_3)) for find in (kafka_servers, strict_servers)]
    finalize(peers, request.param)
    verify_partitions(peers, True)
    yield request.param
    verify_partitions(peers, False)
    finalize(peers, NEWEST_LEVEL)
    for peer in peers:
        peer.close()
