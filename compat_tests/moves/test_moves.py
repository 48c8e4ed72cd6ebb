"""What one owner of a data directory wrote, the next one has: every record, topic, setting and committed offset, in
both directions, after an orderly end and after kill -9; nothing is set aside as stray."""

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
def test_everything_is_there_under_the_next_owner(owners: list[tuple[Owner, End]], site: Site) -> None:
    history = History(site)
    for number, (owner, end) in enumerate(owners):
        site.start(owner)
        history.meet()
        if number:
            history.check()
        else:
            history.begin()
        history.write()
        site.end(end)
        if site.alone:
            # Over ZooKeeper a broker that begins, Kafka's too, answers before the controller has told it of any topic,
            # and librdkafka gives up what it holds for a topic that there is not.
            history.survive()
    site.start("odradek")
    history.meet()
    history.check()
