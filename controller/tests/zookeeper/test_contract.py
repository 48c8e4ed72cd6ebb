"""The promises of the interface to ZooKeeper, kept by the double and by the kazoo client with a real server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from controller.tests.zookeeper.kit import DoubleWorld, RealWorld, World
from odradek_peers import ZooKeeperServer

from odradek_controller.zookeeper.client import (
    MAX_REQUEST_BYTES,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    EventType,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    RequestTooLargeError,
    SessionEvent,
    SessionExpiredError,
    Set,
    Stat,
    WatchedEvent,
    ZooKeeper,
    request_bytes,
)

CREATED, DELETED, CHANGED, CHILD = EventType.CREATED, EventType.DELETED, EventType.CHANGED, EventType.CHILD
CONNECTED, DISCONNECTED, EXPIRED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.EXPIRED

_bases = itertools.count()


@pytest.fixture(scope="module")
def real_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(params=["double", "slow double", pytest.param("real", marks=pytest.mark.peers)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world: World
    if request.param == "real":
        world = RealWorld(request.getfixturevalue("real_server"), f"/test-{next(_bases)}")
    else:
        world = DoubleWorld(latency_ms=3 if request.param == "slow double" else 0)
    yield world
    await world.close()


@pytest.fixture
async def zk(world: World) -> ZooKeeper:
    return await world.connect()


@pytest.fixture
async def other(world: World) -> ZooKeeper:
    """A second client below the same chroot."""
    return await world.connect()


async def test_a_new_znode_can_be_read(zk: ZooKeeper) -> None:
    assert await zk.create("/a", b"first") == "/a"

    data, stat = await zk.get("/a")
    assert data == b"first"
    assert stat == Stat(stat.czxid, stat.czxid, version=0, cversion=0, ephemeral_owner=0, num_children=0)
    assert await zk.exists("/a") == stat


async def test_a_znode_without_data_is_read_as_empty(zk: ZooKeeper) -> None:
    await zk.create("/nothing")
    await zk.create("/empty", b"")
    await zk.create("/emptied", b"data")
    await zk.set("/emptied", None)

    assert [(await zk.get(path))[0] for path in ("/nothing", "/empty", "/emptied")] == [b"", b"", b""]


async def test_a_missing_znode_cannot_be_read_set_or_deleted(zk: ZooKeeper) -> None:
    for ask in (zk.get("/a"), zk.set("/a", b""), zk.delete("/a"), zk.children("/a")):
        with pytest.raises(NoNodeError) as raised:
            await ask
        assert raised.value.path == "/a"
    assert await zk.exists("/a") is None


async def test_a_znode_is_created_once(zk: ZooKeeper) -> None:
    await zk.create("/a", b"first")

    with pytest.raises(NodeExistsError):
        await zk.create("/a", b"second")
    assert (await zk.get("/a"))[0] == b"first"


async def test_a_znode_needs_a_parent(zk: ZooKeeper) -> None:
    with pytest.raises(NoNodeError) as raised:
        await zk.create("/a/b")
    assert raised.value.path == "/a/b"


async def test_an_ephemeral_znode_has_no_children(zk: ZooKeeper) -> None:
    await zk.create("/a", ephemeral=True)

    with pytest.raises(NoChildrenForEphemeralsError):
        await zk.create("/a/b")


async def test_set_increments_the_version_and_checks_the_expected_one(zk: ZooKeeper) -> None:
    await zk.create("/a", b"0")
    before = await zk.exists("/a")
    assert before is not None

    stat = await zk.set("/a", b"1", 0)
    assert (stat.version, stat.czxid) == (1, before.czxid)
    assert stat.mzxid > before.mzxid
    with pytest.raises(BadVersionError):
        await zk.set("/a", b"2", 0)
    assert await zk.get("/a") == (b"1", stat)
    assert (await zk.set("/a", b"2")).version == 2


async def test_delete_checks_the_version_and_the_children(zk: ZooKeeper) -> None:
    await zk.create("/a")
    await zk.create("/a/b")
    await zk.set("/a", b"1")

    with pytest.raises(NotEmptyError):
        await zk.delete("/a", 1)
    await zk.delete("/a/b")
    with pytest.raises(BadVersionError):
        await zk.delete("/a", 0)
    await zk.delete("/a", 1)
    assert await zk.exists("/a") is None


async def test_children_are_sorted_names_and_their_changes_are_counted(zk: ZooKeeper) -> None:
    await zk.create("/a")
    for name in ("c", "a", "b"):
        await zk.create(f"/a/{name}")
    await zk.create("/a/b/below")
    await zk.delete("/a/c")

    assert await zk.children("/a") == ["a", "b"]
    stat = await zk.exists("/a")
    assert stat is not None
    assert (stat.version, stat.cversion, stat.num_children) == (0, 4, 2)


async def test_each_new_znode_has_a_higher_czxid(zk: ZooKeeper, other: ZooKeeper) -> None:
    czxids = []
    for client in (zk, other, zk):
        await client.create("/a")
        stat = await client.exists("/a")
        assert stat is not None
        czxids.append(stat.czxid)
        await client.delete("/a")

    assert czxids == sorted(set(czxids))


async def test_sequence_numbers_count_the_creations_below_the_parent(zk: ZooKeeper) -> None:
    await zk.create("/a")
    names = [await zk.create("/a/n-", sequential=True)]
    await zk.create("/a/plain")
    names.append(await zk.create("/a/m-", sequential=True))
    await zk.delete(names.pop())
    names.append(await zk.create("/a/n-", b"data", sequential=True, ephemeral=True))

    assert names == ["/a/n-0000000000", "/a/n-0000000003"]
    assert (await zk.get(names[-1]))[0] == b"data"


async def test_a_multi_runs_in_order_and_returns_each_result(zk: ZooKeeper) -> None:
    await zk.create("/old", b"old")
    results = await zk.multi(
        [
            Check("/old", 0),
            Create("/a", b"0"),
            Create("/a/n-", sequential=True),
            Set("/a", b"1", 0),
            Delete("/old", 0),
            Create("/old", ephemeral=True),
        ]
    )

    data, stat = await zk.get("/a")
    old = await zk.exists("/old")
    assert data == b"1"
    assert results == [None, "/a", "/a/n-0000000000", stat._replace(), None, "/old"]
    assert old is not None
    assert (old.czxid, old.ephemeral_owner) == (stat.czxid, zk.session_id)
    assert stat.mzxid == stat.czxid


async def test_a_multi_returns_the_stat_of_a_new_registration(zk: ZooKeeper) -> None:
    _, stat = await zk.multi([Create("/ids", b"", ephemeral=True), Set("/ids", b"registration")])

    assert isinstance(stat, Stat)
    assert (stat.version, stat.ephemeral_owner) == (1, zk.session_id)
    assert await zk.get("/ids") == (b"registration", stat)


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Check("/epoch", 3), BadVersionError("/epoch")),
        (Check("/missing", 0), NoNodeError("/missing")),
        (Create("/epoch"), NodeExistsError("/epoch")),
        (Create("/missing/below"), NoNodeError("/missing/below")),
        (Set("/epoch", b"", 7), BadVersionError("/epoch")),
        (Set("/missing", b""), NoNodeError("/missing")),
        (Delete("/epoch", 7), BadVersionError("/epoch")),
        (Delete("/parent"), NotEmptyError("/parent")),
    ],
)
async def test_a_failed_multi_changes_nothing_and_names_the_operation(
    zk: ZooKeeper, failing: Op, error: NodeError
) -> None:
    await zk.multi([Create("/epoch", b"0"), Create("/parent"), Create("/parent/child", b"old")])

    with pytest.raises(MultiError) as raised:
        await zk.multi(
            [
                Create("/new"),
                Set("/parent/child", b"new"),
                Create("/parent/second-", sequential=True),
                failing,
                Check("/parent", 99),
            ]
        )

    assert raised.value.index == 3
    assert (type(raised.value.error), raised.value.error.path) == (type(error), error.path)
    assert await zk.exists("/new") is None
    data, stat = await zk.get("/parent/child")
    assert (data, stat.version) == (b"old", 0)
    assert await zk.children("/parent") == ["child"]
    assert await zk.create("/parent/n-", sequential=True) == "/parent/n-0000000001"


async def test_a_deletion_in_a_failed_multi_changes_nothing(zk: ZooKeeper) -> None:
    await zk.multi([Create("/a", b"0"), Create("/a/b", b"data", ephemeral=True)])
    before = await zk.get("/a"), await zk.get("/a/b"), await zk.children("/a")

    with pytest.raises(MultiError):
        await zk.multi([Delete("/a/b"), Delete("/a"), Check("/a", 0)])

    assert (await zk.get("/a"), await zk.get("/a/b"), await zk.children("/a")) == before


async def test_an_empty_multi_returns_no_results(zk: ZooKeeper) -> None:
    assert await zk.multi([]) == []


async def test_an_ephemeral_znode_ends_with_its_session(zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a", ephemeral=True)
    stat = await other.exists("/a")
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id != other.session_id

    await zk.close()

    assert await other.exists("/a") is None


Read = Callable[[ZooKeeper, Callable[[WatchedEvent], None]], Awaitable[object]]
Change = Callable[[ZooKeeper], Awaitable[object]]

READS: dict[str, Read] = {
    "get": lambda zk, watch: zk.get("/a", watch),
    "exists": lambda zk, watch: zk.exists("/a", watch),
    "children": lambda zk, watch: zk.children("/a", watch),
}
CHANGES: dict[str, Change] = {
    "set": lambda zk: zk.set("/a", b"new"),
    "delete": lambda zk: zk.delete("/a"),
    "create child": lambda zk: zk.create("/a/child"),
    "set child": lambda zk: zk.multi([Create("/child"), Set("/child", b"")]),
}


@pytest.mark.parametrize(
    ("read", "change", "seen"),
    [
        ("get", "set", CHANGED),
        ("get", "delete", DELETED),
        ("get", "create child", None),
        ("exists", "set", CHANGED),
        ("exists", "delete", DELETED),
        ("exists", "create child", None),
        ("children", "set", None),
        ("children", "delete", DELETED),
        ("children", "create child", CHILD),
    ],
)
async def test_a_watch_reports_only_changes_of_what_was_read(
    world: World, zk: ZooKeeper, other: ZooKeeper, read: str, change: str, seen: EventType | None
) -> None:
    events: list[WatchedEvent] = []
    await zk.create("/a")
    await zk.create("/last")
    await READS[read](zk, events.append)
    last: list[WatchedEvent] = []
    await zk.exists("/last", last.append)

    await CHANGES[change](other)
    await other.set("/last", b"")

    await world.until(lambda: bool(last))
    assert events == ([] if seen is None else [WatchedEvent(seen, "/a")])


async def test_a_watch_of_a_missing_znode_reports_its_creation(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    events: list[WatchedEvent] = []
    await zk.exists("/a", events.append)

    await other.create("/a")

    await world.until(lambda: events == [WatchedEvent(CREATED, "/a")])


async def test_a_failed_read_registers_no_watch(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    events: list[WatchedEvent] = []
    for read in (zk.get("/a", events.append), zk.children("/a", events.append)):
        with pytest.raises(NoNodeError):
            await read
    last: list[WatchedEvent] = []
    await zk.exists("/b", last.append)

    await other.create("/a")
    await other.create("/b")

    await world.until(lambda: bool(last))
    assert events == []


async def test_a_watch_reports_one_change(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a")
    events: list[WatchedEvent] = []
    await zk.get("/a", events.append)
    await zk.children("/a", events.append)

    await other.set("/a", b"1")
    await other.create("/a/b")
    await other.set("/a", b"2")
    await other.delete("/a/b")
    await other.delete("/a")

    await world.until(lambda: _is_gone(zk, "/a"))
    assert events == [WatchedEvent(CHANGED, "/a"), WatchedEvent(CHILD, "/a")]


async def test_every_read_registers_its_own_watch(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a")
    events: list[tuple[str, WatchedEvent]] = []
    await zk.get("/a", lambda event: events.append(("first", event)))
    await zk.exists("/a", lambda event: events.append(("second", event)))
    await zk.children("/a", lambda event: events.append(("third", event)))

    await other.delete("/a")

    await world.until(lambda: len(events) == 3)
    gone = WatchedEvent(DELETED, "/a")
    assert sorted(events) == [("first", gone), ("second", gone), ("third", gone)]


async def test_a_multi_fires_the_watches_of_all_its_operations(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.multi([Create("/a"), Create("/b"), Create("/c")])
    events: list[WatchedEvent] = []
    for path in ("/a", "/b", "/c"):
        await zk.get(path, events.append)
    await zk.children("/", events.append)

    await other.multi([Set("/b", b""), Delete("/a"), Set("/b", b""), Set("/c", b"")])

    await world.until(lambda: len(events) == 4)
    assert events == [
        WatchedEvent(CHANGED, "/b"),
        WatchedEvent(DELETED, "/a"),
        WatchedEvent(CHILD, "/"),
        WatchedEvent(CHANGED, "/c"),
    ]


async def test_a_failed_multi_fires_no_watch(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a")
    events: list[WatchedEvent] = []
    await zk.get("/a", events.append)

    with pytest.raises(MultiError):
        await other.multi([Set("/a", b""), Check("/missing", 0)])
    await other.delete("/a")

    await world.until(lambda: bool(events))
    assert events == [WatchedEvent(DELETED, "/a")]


async def test_the_event_comes_before_a_response_with_the_new_data(zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a", b"0")
    for number in range(1, 30):
        events: list[WatchedEvent] = []
        before, _ = await zk.get("/a", events.append)
        changing = asyncio.create_task(other.set("/a", b"%d" % number))
        # Several concurrent reads, because the first with the new data may come directly after the change.
        while True:
            found = await asyncio.gather(*(_read(zk, events) for _ in range(3)))
            for data, seen in found:
                assert seen or data == before
            if found[-1][0] != before:
                break
        await changing


async def _read(zk: ZooKeeper, events: list[WatchedEvent]) -> tuple[bytes, bool]:
    data, _ = await zk.get("/a")
    return data, bool(events)


async def test_the_event_comes_before_the_response_to_the_change(zk: ZooKeeper) -> None:
    events: list[WatchedEvent] = []
    await zk.exists("/a", events.append)

    await zk.create("/a")

    assert events == [WatchedEvent(CREATED, "/a")]


async def test_a_failing_watch_does_not_stop_other_watches(world: World, zk: ZooKeeper) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    events: list[WatchedEvent] = []

    def fail(event: WatchedEvent) -> None:
        raise ValueError(event.path)

    await zk.exists("/a", fail)
    await zk.exists("/a", events.append)
    await zk.create("/a")

    await world.until(lambda: bool(reported))
    assert events == [WatchedEvent(CREATED, "/a")]
    assert [type(context["exception"]) for context in reported] == [ValueError]


async def test_requests_run_in_the_order_in_which_they_were_made(zk: ZooKeeper) -> None:
    await zk.create("/a")

    stats = await asyncio.gather(*(zk.set("/a", b"%d" % number) for number in range(100)))

    assert [stat.version for stat in stats] == list(range(1, 101))
    assert (await zk.get("/a"))[0] == b"99"


async def test_a_cancelled_request_does_not_stop_others(world: World, zk: ZooKeeper) -> None:
    await zk.create("/a")
    tasks = [asyncio.create_task(zk.set("/a", b"")) for _ in range(50)]
    await asyncio.sleep(0)
    for task in tasks[:40]:
        task.cancel()

    stats = await asyncio.gather(*tasks[40:])

    assert [stat.version for stat in stats] == sorted(stat.version for stat in stats)
    assert (await zk.get("/a"))[1].version == stats[-1].version


async def test_a_request_above_the_size_limit_is_not_sent(world: World, zk: ZooKeeper) -> None:
    events: list[SessionEvent] = []
    zk.listen(events.append)
    room = MAX_REQUEST_BYTES - request_bytes([Create(world.base + "/a")])

    await zk.create("/a", bytes(room))
    with pytest.raises(RequestTooLargeError):
        await zk.create("/b", bytes(room + 1))
    with pytest.raises(RequestTooLargeError):
        await zk.set("/a", bytes(MAX_REQUEST_BYTES))

    assert len((await zk.get("/a"))[0]) == room
    assert events == []


async def test_a_broken_connection_is_followed_by_another_with_the_same_session(
    world: World, zk: ZooKeeper, other: ZooKeeper
) -> None:
    session_id = zk.session_id
    events: list[SessionEvent] = []
    zk.listen(events.append)
    await zk.create("/a", ephemeral=True)

    world.drop(zk)

    await world.until(lambda: events == [DISCONNECTED, CONNECTED])
    await zk.until_connected()
    assert zk.session_id == session_id
    stat = await other.exists("/a")
    assert stat is not None
    assert stat.ephemeral_owner == session_id


async def test_requests_without_a_connection_fail(world: World) -> None:
    zk = await world.connect(session_timeout_ms=2_000)
    received: list[object] = []
    zk.listen(received.append)

    async def ask() -> None:
        try:
            await zk.get("/")
        except ConnectionLossError:
            received.append("failed")

    world.cut(zk)
    pending = asyncio.create_task(ask())
    await world.until(lambda: not zk.connected)

    await pending
    assert received == [DISCONNECTED, "failed"]
    with pytest.raises(ConnectionLossError):
        await zk.get("/")
    with pytest.raises(ConnectionLossError):
        await zk.multi([Create("/a")])

    waiting = asyncio.create_task(zk.until_connected())
    world.heal(zk)
    await world.until(waiting.done)
    assert zk.connected
    assert await zk.exists("/a") is None


async def test_a_watch_does_not_outlive_the_connection(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a")
    events: list[WatchedEvent] = []
    session: list[SessionEvent] = []
    zk.listen(session.append)
    await zk.get("/a", events.append)
    await zk.exists("/b", events.append)
    await zk.children("/", events.append)

    world.drop(zk)
    await world.until(lambda: session == [DISCONNECTED, CONNECTED])
    await other.set("/a", b"1")
    await other.create("/b")
    await world.until(lambda: _is_there(zk, "/b"))
    assert events == []

    await zk.get("/a", events.append)
    await other.set("/a", b"2")
    await world.until(lambda: events == [WatchedEvent(CHANGED, "/a")])


async def test_an_interrupted_session_expires_and_another_begins(world: World, other: ZooKeeper) -> None:
    zk = await world.connect(session_timeout_ms=1_500)
    first = zk.session_id
    events: list[SessionEvent] = []
    zk.listen(events.append)
    await zk.create("/a", ephemeral=True)
    await zk.create("/kept")
    gone: list[WatchedEvent] = []
    await other.exists("/a", gone.append)

    world.cut(zk)
    await world.until(lambda: bool(gone))
    # The client learns of the expiry when it reaches the server again.
    assert gone == [WatchedEvent(DELETED, "/a")]
    await world.until(lambda: events == [DISCONNECTED])
    assert zk.session_id == first
    world.heal(zk)

    await world.until(lambda: zk.connected)
    assert events == [DISCONNECTED, EXPIRED, CONNECTED]
    assert zk.session_id != first
    assert await zk.exists("/a") is None
    assert await zk.exists("/kept") is not None
    await zk.create("/a", ephemeral=True)
    stat = await other.exists("/a")
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id


async def test_a_short_interruption_fails_no_request(world: World, zk: ZooKeeper, other: ZooKeeper) -> None:
    await zk.create("/a", ephemeral=True)
    events: list[SessionEvent] = []
    zk.listen(events.append)

    world.cut(zk)
    pending = asyncio.create_task(zk.get("/a"))
    assert await other.exists("/a") is not None
    assert not pending.done()
    world.heal(zk)

    await world.until(pending.done)
    assert (await pending)[0] == b""
    assert events == []


async def test_znodes_and_sessions_outlive_the_server_process(world: World, zk: ZooKeeper) -> None:
    session_id = zk.session_id
    await zk.create("/kept", b"data")
    await zk.create("/mine", ephemeral=True)
    before = await zk.get("/kept")
    events: list[SessionEvent] = []
    zk.listen(events.append)

    await world.restart()

    await world.until(lambda: events[-1:] == [CONNECTED])
    assert EXPIRED not in events
    assert zk.session_id == session_id
    assert await zk.get("/kept") == before
    assert await zk.exists("/mine") is not None
    await zk.create("/later")
    later = await zk.exists("/later")
    assert later is not None
    assert later.czxid > before[1].czxid


async def test_each_listener_gets_every_event_until_it_is_removed(world: World, zk: ZooKeeper) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    received: list[tuple[str, SessionEvent]] = []

    def fail(event: SessionEvent) -> None:
        raise ValueError(event)

    unlisten_failing = zk.listen(fail)
    unlisten_first = zk.listen(lambda event: received.append(("first", event)))
    zk.listen(lambda event: received.append(("second", event)))

    world.drop(zk)
    await world.until(lambda: len(received) == 4)
    unlisten_failing()
    unlisten_first()
    unlisten_first()
    world.drop(zk)
    await world.until(lambda: len(received) == 6)

    assert received == [
        ("first", DISCONNECTED),
        ("second", DISCONNECTED),
        ("first", CONNECTED),
        ("second", CONNECTED),
        ("second", DISCONNECTED),
        ("second", CONNECTED),
    ]
    assert [type(context["exception"]) for context in reported] == [ValueError, ValueError]


async def test_a_closed_client_refuses_requests_and_calls_no_listener(
    world: World, zk: ZooKeeper, other: ZooKeeper
) -> None:
    events: list[object] = []
    zk.listen(events.append)
    await zk.exists("/a", events.append)
    world.cut(zk)
    pending = asyncio.create_task(zk.get("/"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(zk.close())
    await asyncio.sleep(0)
    world.heal(zk)

    await closing
    await zk.close()
    await other.create("/a")

    for request in (pending, zk.get("/"), zk.multi([Create("/b")]), zk.until_connected()):
        with pytest.raises(SessionExpiredError):
            await request
    assert not zk.connected
    assert events == []


async def test_a_client_without_a_connection_can_be_closed(world: World, other: ZooKeeper) -> None:
    zk = await world.connect(session_timeout_ms=1_500)
    await zk.create("/a", ephemeral=True)
    world.cut(zk)
    await world.until(lambda: not zk.connected)

    await zk.close()

    await world.until(lambda: _is_gone(other, "/a"))


async def test_a_chroot_is_created_and_all_paths_are_below_it(world: World, zk: ZooKeeper) -> None:
    below = await world.connect(f"{world.base}/deep/er")
    again = await world.connect(f"{world.base}/deep/er")
    events: list[WatchedEvent] = []
    await below.exists("/a", events.append)
    await below.children("/", events.append)

    names = [
        await below.create("/a", b"data"),
        await below.create("/n-", sequential=True),
        *await below.multi([Create("/a/b"), Create("/a/n-", sequential=True)]),
    ]

    assert names == ["/a", "/n-0000000001", "/a/b", "/a/n-0000000001"]
    assert await zk.children("/deep/er/a") == ["b", "n-0000000001"]
    assert (await again.get("/a"))[0] == b"data"
    assert await again.children("/") == ["a", "n-0000000001"]
    await world.until(lambda: events == [WatchedEvent(CREATED, "/a"), WatchedEvent(CHILD, "/")])
    with pytest.raises(NodeExistsError) as raised:
        await below.create("/a")
    assert raised.value.path == "/a"
    with pytest.raises(MultiError) as failed:
        await below.multi([Check("/a", 7)])
    assert failed.value.error.path == "/a"


async def test_clients_in_different_chroots_do_not_see_each_other(world: World) -> None:
    one, two = await world.connect(f"{world.base}/one"), await world.connect(f"{world.base}/two")

    await one.create("/a")

    assert await two.exists("/a") is None
    assert await two.children("/") == []


async def _is_gone(zk: ZooKeeper, path: str) -> bool:
    return await zk.exists(path) is None


async def _is_there(zk: ZooKeeper, path: str) -> bool:
    return await zk.exists(path) is not None
