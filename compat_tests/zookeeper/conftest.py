"""Three Odradek brokers over ZooKeeper, which the tests of a module share, and a ZooKeeper client."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from kazoo.client import KazooClient
from odradek_peers import ZooKeeperServer

from compat_tests.zookeeper.cluster import ZooKeeperCluster

FAILED = pytest.StashKey[bool]()
"""Set on a test that failed: the clusters that it used may be in another state."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperCluster]:
    """Brokers 1, 2 and 3; a test leaves them all running."""
    with ZooKeeperServer() as server:
        cluster = ZooKeeperCluster(server, "/odradek", tmp_path_factory.mktemp("odradek"))
        try:
            for broker in (1, 2, 3):
                cluster.odradek(broker)
            cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
            yield cluster
        finally:
            cluster.close()


@pytest.fixture
def zookeeper(cluster: ZooKeeperCluster) -> Iterator[KazooClient]:
    """A ZooKeeper client with the cluster's chroot."""
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()
