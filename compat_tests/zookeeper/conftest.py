"""Three Odradek brokers over a ZooKeeper, which the tests of a module share, and a ZooKeeper client."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from kazoo.client import KazooClient
from odradek_peers import ZooKeeperServer

from compat_tests.zookeeper.members import Members

FAILED = pytest.StashKey[bool]()
"""Set on a test that failed: the clusters that it used may be in another state."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Brokers 1, 2 and 3; a test leaves them all running."""
    with ZooKeeperServer() as server:
        found = Members(server, "/ours", tmp_path_factory.mktemp("ours"))
        try:
            for broker in (1, 2, 3):
                found.odradek(broker)
            found.until(lambda: len(found.admin().list_topics(timeout=10).brokers) == 3)
            yield found
        finally:
            found.close()


@pytest.fixture
def zookeeper(ours: Members) -> Iterator[KazooClient]:
    """A ZooKeeper client with the cluster's chroot."""
    client = KazooClient(ours.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()
