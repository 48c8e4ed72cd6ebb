"""Fixtures for pytest, there as soon as Odradek is installed: `kafka` and `kafka_cluster`.

The broker itself is imported by the first test that asks for one, so that other test suites pay nothing. Under xdist
every worker has a broker of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from odradek.cluster import Cluster

_LOG_LINES_MAX = 200


class ClusterFactory(Protocol):
    """Takes the arguments of `odradek.Cluster`; returns it started."""

    def __call__(self, **arguments: Any) -> Cluster: ...


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Settings of the session's broker under Kafka's names; override it in a `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def _odradek_of_the_session(kafka_config: Mapping[str, object]) -> Iterator[Cluster]:
    from odradek.cluster import Cluster

    with Cluster(config=kafka_config) as cluster:
        yield cluster


@pytest.fixture
def kafka(_odradek_of_the_session: Cluster) -> Cluster:
    """One broker for the whole session, as new for each test: see `Cluster.reset`."""
    _odradek_of_the_session.reset()
    return _odradek_of_the_session


@pytest.fixture
def kafka_cluster() -> Iterator[ClusterFactory]:
    """A factory of clusters that end with the test: `kafka_cluster(topics={"orders": 3}, emulate="3.9")`."""
    from odradek.cluster import Cluster

    made: list[Cluster] = []

    def make(**arguments: Any) -> Cluster:
        cluster = Cluster(**arguments)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in reversed(made):
        cluster.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its broker had to say."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed:
        # A user's own fixture of this name may be anything.
        entries = list(getattr(arguments.get("kafka"), "logs", ()))[-_LOG_LINES_MAX:]
        if entries:
            report.sections.append(("Log of the Kafka broker", "\n".join(_line(entry) for entry in entries)))
    return report


def _line(entry: Mapping[str, Any]) -> str:
    known = ("timestamp", "level", "event")
    rest = " ".join(f"{name}={value}" for name, value in entry.items() if name not in known)
    return f"{entry.get('timestamp', '')} {entry.get('level', ''):7} {entry.get('event', '')} {rest}".rstrip()
