"""Faults of the double that a real server does not make on demand."""

from __future__ import annotations

import asyncio
import random

import pytest
from controller.tests.zookeeper.kit import ManualTimers

from odradek_controller.zookeeper.client import (
    ConnectionLossError,
    NodeExistsError,
    SessionEvent,
    WatchedEvent,
    ZooKeeperError,
)
from zookeeper_double.server import ZooKeeperServerDouble

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.EXPIRED
TIMEOUT_MS = 6_000


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


@pytest.fixture
def server(timers: ManualTimers) -> ZooKeeperServerDouble:
    return ZooKeeperServerDouble(timers)


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_session_of_a_crashed_client_lasts_for_its_timeout(
    server: ZooKeeperServerDouble, timers: ManualTimers
) -> None:
    crashed = await server.connect(session_timeout_ms=TIMEOUT_MS)
    other = await server.connect()
    events: list[object] = []
    crashed.listen(events.append)
    await crashed.create("/a", ephemeral=True)
    await crashed.exists("/b", events.append)
    pending = asyncio.create_task(crashed.get("/a"))
    await asyncio.sleep(0)

    server.crash(crashed)
    await other.create("/b")
    timers.advance(TIMEOUT_MS - 1)
    assert await other.exists("/a") is not None
    timers.advance(1)
    assert await other.exists("/a") is None

    await _settle()
    assert events == []
    assert not pending.done()
    pending.cancel()


async def test_a_connected_client_learns_immediately_of_its_expired_session(
    server: ZooKeeperServerDouble, timers: ManualTimers
) -> None:
    zk = await server.connect(session_timeout_ms=TIMEOUT_MS)
    events: list[SessionEvent] = []
    zk.listen(events.append)
    await zk.create("/a", ephemeral=True)

    server.expire(zk)
    await _settle()

    assert events == [DISCONNECTED, EXPIRED, CONNECTED]
    assert timers.now_ms == 0
    assert await zk.exists("/a") is None


async def test_a_client_frozen_for_its_timeout_loses_its_session(
    server: ZooKeeperServerDouble, timers: ManualTimers
) -> None:
    zk, other = await server.connect(session_timeout_ms=TIMEOUT_MS), await server.connect()
    await zk.create("/a", ephemeral=True)
    for frozen_ms, remains in ((TIMEOUT_MS - 1, True), (TIMEOUT_MS - 1, True), (TIMEOUT_MS, False)):
        server.freeze(zk, True)
        timers.advance(frozen_ms)
        server.freeze(zk, False)
        assert (await other.exists("/a") is not None) == remains
    await zk.until_connected()
    assert await zk.exists("/a") is None


async def test_a_write_succeeds_although_its_response_is_delayed(
    server: ZooKeeperServerDouble, timers: ManualTimers
) -> None:
    zk = await server.connect(session_timeout_ms=TIMEOUT_MS)
    other = await server.connect()
    server.cut(zk, to_server=False)
    writing = asyncio.create_task(zk.create("/a"))
    await _settle()
    assert await other.exists("/a") is not None
    assert not writing.done()

    timers.advance(TIMEOUT_MS * 2 // 3)
    with pytest.raises(ConnectionLossError):
        await writing

    server.heal(zk)
    await zk.until_connected()
    with pytest.raises(NodeExistsError):
        await zk.create("/a")


async def test_a_delayed_write_arrives_when_the_link_is_healed_in_time(
    server: ZooKeeperServerDouble, timers: ManualTimers
) -> None:
    zk = await server.connect(session_timeout_ms=TIMEOUT_MS)
    other = await server.connect()
    server.cut(zk, to_client=False)
    writing = asyncio.create_task(zk.create("/a"))
    await _settle()
    timers.advance(TIMEOUT_MS * 2 // 3 - 1)
    assert await other.exists("/a") is None

    server.heal(zk)

    assert await writing == "/a"
    timers.advance(10 * TIMEOUT_MS)
    assert zk.connected


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
async def test_a_client_notices_a_cut_before_its_session_expires(
    server: ZooKeeperServerDouble, timers: ManualTimers, to_server: bool, to_client: bool
) -> None:
    zk = await server.connect(session_timeout_ms=TIMEOUT_MS)
    other = await server.connect()
    events_at: list[tuple[int, object]] = []
    zk.listen(lambda event: events_at.append((timers.now_ms, event)))
    await zk.create("/a", ephemeral=True)

    def gone(event: WatchedEvent) -> None:
        events_at.append((timers.now_ms, event.type.value))

    await other.exists("/a", gone)
    server.cut(zk, to_server=to_server, to_client=to_client)
    for _ in range(30):
        timers.advance(1_000)
        await _settle()

    # The session timeout starts at the last ping that arrived: at the cut, or when the client closed the connection.
    expired_ms = TIMEOUT_MS if to_server else TIMEOUT_MS * 2 // 3 + TIMEOUT_MS
    assert events_at == [(TIMEOUT_MS * 2 // 3, DISCONNECTED), (expired_ms, "deleted")]
    server.heal(zk)
    await zk.until_connected()
    assert [event for _, event in events_at[2:]] == [EXPIRED, CONNECTED]


async def test_no_session_expires_while_the_server_is_down(server: ZooKeeperServerDouble, timers: ManualTimers) -> None:
    zk = await server.connect(session_timeout_ms=TIMEOUT_MS)
    lost = await server.connect(session_timeout_ms=TIMEOUT_MS)
    await zk.create("/a", ephemeral=True)
    await lost.create("/b", ephemeral=True)

    server.stop()
    server.crash(lost)
    timers.advance(10 * TIMEOUT_MS)
    with pytest.raises(ConnectionLossError):
        await zk.get("/a")
    server.start()
    await zk.until_connected()

    timers.advance(TIMEOUT_MS - 1)
    assert await zk.children("/") == ["a", "b"]
    timers.advance(1)
    assert await zk.children("/") == ["a"]


async def test_messages_of_a_connection_do_not_overtake_each_other() -> None:
    async def run(seed: int) -> list[object]:
        timers = ManualTimers()
        rng = random.Random(seed)
        server = ZooKeeperServerDouble(timers, latency_ms=lambda: rng.randrange(20))
        connecting = asyncio.gather(server.connect(), server.connect())
        while not connecting.done():
            timers.advance(1)
            await asyncio.sleep(0)
        zk, other = await connecting
        trace: list[object] = []

        async def write(number: int) -> None:
            try:
                stat = await zk.set("/a", b"%d" % number)
                trace.append((timers.now_ms, number, stat.version))
            except ZooKeeperError as error:
                trace.append((timers.now_ms, number, type(error).__name__))

        async def work() -> None:
            await zk.create("/a")
            await other.exists("/a", lambda event: trace.append((timers.now_ms, event)))
            await asyncio.gather(*(write(number) for number in range(20)))

        working = asyncio.create_task(work())
        while not working.done():
            timers.advance(1)
            await asyncio.sleep(0)
        await working
        return trace

    trace = await run(1)

    versions = [line[2] for line in trace if isinstance(line, tuple) and len(line) == 3]
    assert versions == list(range(1, 21))
    assert trace == await run(1)
    assert trace != await run(2)
