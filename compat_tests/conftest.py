"""The broker under test (`--broker odradek`, `kafka-4.3.0` or `kafka-3.9.1`) and the fixtures of all tests."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker, new_broker
from compat_tests.clients import Client

_topic_numbers = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", default="odradek", choices=["odradek", "kafka-4.3.0", "kafka-3.9.1"])


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return the name of a client or member as its test id; pytest calls the hook for all parameters."""
    if isinstance(val, type) or not type(val).__module__.startswith("compat_tests."):
        return None
    name = getattr(val, "name", None)
    return name if isinstance(name, str) else None


@pytest.fixture(scope="session")
def broker_name(request: pytest.FixtureRequest) -> str:
    """odradek, kafka-4.3.0 or kafka-3.9.1."""
    return str(request.config.getoption("--broker"))


@pytest.fixture(scope="session")
def broker(broker_name: str) -> Iterator[Broker]:
    """The broker that tests share; each test uses its own topics and groups and leaves the broker running."""
    shared = new_broker(broker_name, {})
    try:
        shared.start()
        yield shared
    finally:
        shared.close()


@pytest.fixture(scope="session")
def servers(broker: Broker) -> str:
    """The shared broker's bootstrap address."""
    return broker.bootstrap_servers


@pytest.fixture
def make_broker(broker_name: str) -> Iterator[Callable[[Mapping[str, str]], Broker]]:
    """A function that starts a new broker, which the test may stop and kill; the argument is its configuration."""
    made: list[Broker] = []

    def make(config: Mapping[str, str]) -> Broker:
        made.append(new_broker(broker_name, config))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def own_broker(make_broker: Callable[[Mapping[str, str]], Broker]) -> Broker:
    """A broker that the test may stop, kill and start again."""
    return make_broker({})


def create_topic(servers: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(30)
    return name


@pytest.fixture
def make_topic(servers: str, request: pytest.FixtureRequest) -> Callable[..., str]:
    """A function that creates topics on the shared broker, named after the test."""

    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        label = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:120].strip("-")
        return create_topic(servers, f"{label}-{next(_topic_numbers)}", partitions=partitions, config=config)

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A new topic of one partition."""
    return make_topic()


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """One of the clients; a test names them with an indirect parametrization."""
    chosen: Client = request.param
    reason = chosen.unsupported_reason()
    if reason:
        pytest.skip(reason)
    return chosen
