"""The promises of the interface to ZooKeeper that kazoo alone does not keep, with a real server."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from controller.tests.zookeeper.cluster import Reports
from controller.tests.zookeeper.kit import TIMEOUT_S, Network, RealWorld
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from odradek_peers import ZooKeeperServer

from odradek_controller.zookeeper.client import ConnectionLossError, Create, SessionEvent, SessionExpiredError, Set
from odradek_controller.zookeeper.kazoo_client import KazooZooKeeper

pytestmark = pytest.mark.peers

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.EXPIRED


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
async def world(server: ZooKeeperServer, request: pytest.FixtureRequest) -> AsyncIterator[RealWorld]:
    world = RealWorld(server, f"/{request.node.name}")
    yield world
    await world.close()


@pytest.fixture
def witness(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain kazoo client."""
    witness = KazooClient(server.connect_string)
    witness.start()
    yield witness
    witness.stop()
    witness.close()


async def test_znodes_without_data_have_none_as_those_of_kafka(world: RealWorld, witness: KazooClient) -> None:
    zk = await world.connect()
    await zk.create("/none")
    await zk.create("/empty", b"")
    await zk.multi([Create("/many"), Create("/set", b"1"), Set("/set", None)])

    paths = ["", "/none", "/empty", "/many", "/set"]
    assert [witness.get(world.base + path)[0] for path in paths] == [None, None, b"", None, None]


async def test_a_request_of_one_session_does_not_run_in_the_next(world: RealWorld, witness: KazooClient) -> None:
    zk = await world.connect(session_timeout_ms=1_500)
    assert isinstance(zk, KazooZooKeeper)
    await zk.create("/mine", ephemeral=True)
    events: list[SessionEvent] = []
    zk.listen(events.append)
    expired, connected = threading.Event(), threading.Event()
    witness.exists(f"{world.base}/mine", watch=lambda _: expired.set())

    # The loop is blocked until kazoo is in its next session.
    world.cut(zk)
    assert expired.wait(TIMEOUT_S)
    zk._kazoo.add_listener(lambda state: connected.set() if state == KazooState.CONNECTED else None)
    world.heal(zk)
    assert connected.wait(TIMEOUT_S)
    assert zk.connected
    with pytest.raises(SessionExpiredError):
        await zk.create("/mine", ephemeral=True)

    await world.until(lambda: events == [DISCONNECTED, EXPIRED, CONNECTED])
    assert witness.exists(f"{world.base}/mine") is None
    await zk.create("/mine", ephemeral=True)


async def test_a_new_session_begins_when_the_thread_of_kazoo_has_ended(
    world: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[object] = []
    monkeypatch.setattr("threading.excepthook", died.append)
    zk = await world.connect()
    await zk.create("/a")
    first = zk.session_id
    events: list[SessionEvent] = []
    zk.listen(events.append)

    # A response to a request that was never sent.
    world.network(zk).send_garbage(struct.pack(">iiqi", 16, 12345, 1, 0))

    await world.until(lambda: events == [DISCONNECTED, EXPIRED, CONNECTED])
    assert zk.session_id != first
    assert await zk.exists("/a") is not None
    await world.until(lambda: len(died) == 1)


async def test_connect_times_out_when_no_server_responds(world: RealWorld, server: ZooKeeperServer) -> None:
    network = Network(server.port)
    network.cut()
    silent = f"127.0.0.1:{network.port}"
    for servers in ("127.0.0.1:1", silent, f"{silent}/chroot"):
        with pytest.raises(TimeoutError, match="no connection to ZooKeeper"):
            await KazooZooKeeper.connect(servers, session_timeout_ms=1_000, connection_timeout_ms=200)
    network.close()


async def test_a_client_connects_although_one_of_the_servers_is_down(world: RealWorld, server: ZooKeeperServer) -> None:
    zk = await KazooZooKeeper.connect(f"127.0.0.1:1,127.0.0.1:2,{server.connect_string}{world.base}")

    assert await zk.children("/") == []
    await zk.close()


async def test_the_connection_to_a_paused_server_is_lost(world: RealWorld, server: ZooKeeperServer) -> None:
    zk = await world.connect(session_timeout_ms=1_500)
    events: list[SessionEvent] = []
    zk.listen(events.append)

    server.pause()
    pending = asyncio.create_task(zk.get("/"))
    await world.until(lambda: bool(events))
    server.resume()

    assert events[0] == DISCONNECTED
    with pytest.raises(ConnectionLossError):
        await pending
    await world.until(lambda: events[-1] == CONNECTED)


async def test_kazoo_logs_only_to_the_reporter(
    world: RealWorld, server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reports = Reports()
    network = Network(server.port)
    zk = await KazooZooKeeper.connect(f"127.0.0.1:{network.port}{world.base}", reporter=reports)
    lost = asyncio.Event()
    zk.listen(lambda event: lost.set())
    network.drop()
    await asyncio.wait_for(lost.wait(), TIMEOUT_S)
    await zk.until_connected()
    await zk.close()
    network.close()
    assert [
        line for line in reports.logged if line.startswith("connection to ZooKeeper {'message': 'Connection dropped")
    ]
    assert not [record for record in caplog.records if record.name.startswith("kazoo")]
