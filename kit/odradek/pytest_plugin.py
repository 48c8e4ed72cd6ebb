"""The pytest fixtures `kafka` and `kafka_cluster`, available as soon as Odradek is installed.

The first test that uses a fixture imports the broker, so a test suite without these tests starts as fast as before.
Under pytest-xdist each worker has its own broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.cluster import Cluster, Topics

_LOG_LINES_MAX = 200

P = ParamSpec("P")


class ClusterFactory(Protocol):
    """The type of the fixture `kafka_cluster`: takes the arguments of `Cluster`, returns the started cluster.

    Raises what `Cluster` and `Cluster.start` raise.
    """

    def __call__(
        self,
        *,
        topics: Topics = (),
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        data: Path | str | None = None,
        port: int = 0,
        emulate: str | None = None,
        process: bool = False,
        durable: bool = False,
    ) -> Cluster: ...


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Return the settings of the session's broker, under Kafka's names; override it in a `conftest.py`.

    An unknown setting makes `kafka` raise SettingsError.
    """
    return {}


@pytest.fixture(scope="session")
def _session_cluster(kafka_config: Mapping[str, object]) -> Iterator[Cluster]:
    from odradek.cluster import Cluster

    with Cluster(config=kafka_config) as cluster:
        yield cluster


@pytest.fixture
def kafka(_session_cluster: Cluster) -> Cluster:
    """Return the session's broker, reset before each test with `Cluster.reset`.

    Raises what `Cluster`, `Cluster.start` and `Cluster.reset` raise.
    """
    _session_cluster.reset()
    return _session_cluster


@pytest.fixture
def kafka_cluster() -> Iterator[ClusterFactory]:
    """Return a factory of clusters that end with the test: `kafka_cluster(topics={"orders": 3}, emulate="3.9")`.

    The factory raises what `Cluster` and `Cluster.start` raise.
    """
    from odradek.cluster import Cluster

    made: list[Cluster] = []
    yield _starting(Cluster, made)
    for cluster in reversed(made):
        cluster.close()


def _starting(make: Callable[P, Cluster], made: list[Cluster]) -> Callable[P, Cluster]:
    def start(*args: P.args, **kwargs: P.kwargs) -> Cluster:
        cluster = make(*args, **kwargs)
        made.append(cluster)
        return cluster.start()

    return start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of the fixture `kafka` to the report of a test that fails."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed:
        # A project may have another fixture with this name.
        entries = list(getattr(arguments.get("kafka"), "logs", ()))[-_LOG_LINES_MAX:]
        if entries:
            report.sections.append(("Log of the Kafka broker", "\n".join(_line(entry) for entry in entries)))
    return report


def _line(entry: Mapping[str, Any]) -> str:
    known = ("timestamp", "level", "event")
    rest = " ".join(f"{name}={value}" for name, value in entry.items() if name not in known)
    return f"{entry.get('timestamp', '')} {entry.get('level', ''):7} {entry.get('event', '')} {rest}".rstrip()
