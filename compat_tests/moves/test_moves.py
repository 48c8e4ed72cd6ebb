"""Each owner of a data directory has everything that the former owner stored: every record, topic, setting and
committed offset, in both directions, after a controlled shutdown and after kill -9. No log becomes a stray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.moves.history import History
from compat_tests.moves.site import End, Owner, Site

pytestmark = pytest.mark.peers

_FROM_KAFKA: list[tuple[Owner, End]] = [("kafka", "stop"), ("odradek", "stop"), ("kafka", "kill"), ("odradek", "kill")]
_FROM_ODRADEK: list[tuple[Owner, End]] = [("odradek", "stop"), ("kafka", "stop"), ("odradek", "kill")]


@pytest.fixture(params=["combined", "zookeeper"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    server = ZooKeeperServer() if request.param == "zookeeper" else None
    if server is not None:
        server.start()
    site = Site(tmp_path, None if server is None else f"{server.connect_string}/kafka")
    try:
        yield site
    finally:
        site.close()
        if server is not None:
            server.close()


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([*_FROM_KAFKA, ("kafka", "stop")], id="kafka-first"),
        pytest.param([*_FROM_ODRADEK, ("kafka", "stop")], id="odradek-first"),
    ],
)
def test_the_next_owner_has_everything_that_was_stored(owners: list[tuple[Owner, End]], site: Site) -> None:
    history = History(site)
    for number, (owner, end) in enumerate(owners):
        site.start(owner)
        history.connect()
        if number:
            history.check()
        else:
            history.create_topics()
        history.write()
        site.end(end)
        if site.is_combined:
            # Over ZooKeeper a starting broker, Kafka's too, responds to Metadata before it knows any topic, and
            # librdkafka drops its queued records for an unknown topic.
            history.queue_for_survivor()
    site.start("odradek")
    history.connect()
    history.check()
