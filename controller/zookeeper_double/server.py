"""ZooKeeper in memory: one server and its clients in one process, on timers that the caller passes in.

Owns sessions, connections, watches and their faults. Leaves the effect of transactions to `tree`. Nothing is random:
the same order of timers gives the same order of events. The contract tests compare it with a real server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from odradek_controller.zookeeper.chroot import Chroot
from odradek_controller.zookeeper.client import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
    Create,
    Delete,
    EventType,
    MultiError,
    NodeError,
    NodeExistsError,
    Op,
    OpResult,
    RequestTooLargeError,
    SessionListener,
    Set,
    Stat,
    Watch,
    WatchedEvent,
    ZooKeeperError,
    request_bytes,
)
from odradek_controller.zookeeper.session import Session, call
from zookeeper_double.tree import Tree

_FIRST_SESSION_ID = 1 << 56

_T = TypeVar("_T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of a broker's `Timers` that the double needs."""

    def call_soon(self, callback: Callable[[], None]) -> object: ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...


class ZooKeeperServerDouble:
    """The server, and the faults that a test or the simulation injects.

    A session ends when the server gets no ping from its client for the session timeout. As with a real server, a client
    that gets no response for two thirds of that time closes the connection, and connects again as soon as it can.
    """

    def __init__(self, timers: Timers, *, latency_ms: Callable[[], int] = lambda: 0) -> None:
        """`latency_ms` returns the latency of each message; messages of one connection keep their order."""
        self._timers = timers
        self._latency_ms = latency_ms
        self._tree = Tree()
        self._sessions: dict[int, _ServerSession] = {}
        self._next_session_id = _FIRST_SESSION_ID
        self._clients: list[ZooKeeperClientDouble] = []
        self.up = True

    async def connect(
        self, *, chroot: str = "", session_timeout_ms: int = 18_000, timers: Timers | None = None
    ) -> ZooKeeperClientDouble:
        """Return a client with a session; create its chroot if it is missing. `timers` are those of the client's
        process, on which it receives messages; by default those of the server."""
        client = ZooKeeperClientDouble(self, timers or self._timers, Chroot(chroot), session_timeout_ms)
        self._clients.append(client)
        client.reconnect()
        await client.until_connected()
        for path in client.chroot.nodes():
            with suppress(NodeExistsError):
                await client.create_at(path)
        return client

    def drop(self, client: ZooKeeperClientDouble) -> None:
        """Reset a client's connection and lose its messages. The client connects again immediately, if it can."""
        client.lose_connection(client.connection)

    def cut(self, client: ZooKeeperClientDouble, *, to_server: bool = True, to_client: bool = True) -> None:
        """Delay all messages in these directions until `heal`."""
        client.cut_to_server |= to_server
        client.cut_to_client |= to_client
        client.link_changed()

    def heal(self, client: ZooKeeperClientDouble) -> None:
        """Deliver the delayed messages of connections that are still open."""
        client.cut_to_server = client.cut_to_client = False
        client.link_changed()

    def freeze(self, client: ZooKeeperClientDouble, frozen: bool) -> None:
        """Stop or resume the pings of a client, as of a process that is stopped. Its timers decide when it receives
        messages."""
        client.frozen = frozen
        if client.connection is not None and client.connection.session is not None:
            self.update_session_timer(client.connection.session)

    def expire(self, client: ZooKeeperClientDouble) -> None:
        """Expire a client's session now."""
        session = self._sessions.get(client.session_id)
        if session is not None:
            self._end_session(session)

    def crash(self, client: ZooKeeperClientDouble) -> None:
        """End a client's process: it gets no event or response any more, and its session lasts until its timeout."""
        self.forget(client)
        client.crash()

    def force(self, op: Op) -> None:
        """Commit an operation without a client, as an administrator with a shell would; ignore its failure."""
        with suppress(MultiError):
            _, events = self._tree.commit([op], 0)
            self._notify(events)

    def stop(self) -> None:
        """Stop the server: every connection breaks, and no session expires until `start`."""
        self.up = False
        for session in self._sessions.values():
            session.stop_timer()
        for client in tuple(self._clients):
            client.lose_connection(client.connection)

    def start(self) -> None:
        """Start the server again, with all znodes and sessions; each session has its whole timeout again."""
        self.up = True
        for session in tuple(self._sessions.values()):
            self.update_session_timer(session)
        for client in tuple(self._clients):
            client.reconnect()

    # -- called by clients --------------------------------------------------------------------------------------------

    def forget(self, client: ZooKeeperClientDouble) -> None:
        if client in self._clients:
            self._clients.remove(client)

    def new_pipe(self, to_client: Timers | None = None) -> _Pipe:
        return _Pipe(to_client or self._timers, self._latency_ms)

    def attach(self, connection: _Connection, session_id: int) -> None:
        """Handle a client's first message: continue its session, or begin one if the id is 0."""
        if session_id == 0:
            session_id, self._next_session_id = self._next_session_id, self._next_session_id + 1
            self._sessions[session_id] = _ServerSession(session_id, connection.client.session_timeout_ms)
        session = self._sessions.get(session_id)
        client = connection.client
        if session is None:
            connection.to_client.send(lambda: client.receive_expiry(connection))
            return
        connection.session = session
        session.connection = connection
        session.stop_timer()
        self.update_session_timer(session)
        connection.to_client.send(lambda: client.receive_session(connection, session_id))

    def update_session_timer(self, session: _ServerSession) -> None:
        """Run the session's timer if the pings of its client do not arrive, and stop it if they do."""
        if not self.up or session.pings_arrive:
            session.stop_timer()
        elif session.timer is None and session.id in self._sessions:
            session.timer = self._timers.call_later(session.timeout_ms, lambda: self._end_session(session))

    def close_session(self, connection: _Connection) -> None:
        if connection.session is not None:
            self._end_session(connection.session)

    def get(self, connection: _Connection, path: str, watch: bool) -> tuple[bytes, Stat]:
        found = self._tree.get(path)
        if watch:
            connection.data_watches.add(path)
        return found

    def exists(self, connection: _Connection, path: str, watch: bool) -> Stat | None:
        if watch:
            connection.data_watches.add(path)
        return self._tree.exists(path)

    def children(self, connection: _Connection, path: str, watch: bool) -> list[str]:
        found = self._tree.children(path)
        if watch:
            connection.child_watches.add(path)
        return found

    def commit(self, connection: _Connection, ops: Sequence[Op]) -> list[OpResult]:
        assert connection.session is not None
        results, events = self._tree.commit(ops, connection.session.id)
        self._notify(events)
        return results

    def _end_session(self, session: _ServerSession) -> None:
        session.stop_timer()
        del self._sessions[session.id]
        _, events = self._tree.commit([Delete(path) for path in self._tree.ephemerals(session.id)], session.id)
        self._notify(events)
        connection = session.connection
        if connection is not None:
            connection.to_client.send(lambda: connection.client.lose_connection(connection))
            connection.session = session.connection = None

    def _notify(self, events: Sequence[WatchedEvent]) -> None:
        watchers = [session.connection for session in self._sessions.values() if session.connection is not None]
        for event in events:
            for connection in watchers:
                connection.notify(event)


class _ServerSession:
    """A session on the server."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.connection: _Connection | None = None
        self.timer: Timer | None = None

    @property
    def pings_arrive(self) -> bool:
        """Whether the server receives the client's pings."""
        connection = self.connection
        if connection is None:
            return False
        client = connection.client
        return client.connected and client.connection is connection and not client.cut_to_server and not client.frozen

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Pipe:
    """One direction of a connection. It keeps the order of messages; a cut delays them, and a lost connection loses
    them."""

    def __init__(self, timers: Timers, latency_ms: Callable[[], int]) -> None:
        self._timers = timers
        self._latency_ms = latency_ms
        self._in_transit: deque[Callable[[], None]] = deque()
        self._due = 0
        self.cut = False

    def send(self, arrive: Callable[[], None]) -> None:
        self._in_transit.append(arrive)
        delay_ms = self._latency_ms()
        if delay_ms:
            self._timers.call_later(delay_ms, self._message_due)
        else:
            self._timers.call_soon(self._message_due)

    def deliver(self) -> None:
        """Deliver the messages that are due, in the order in which they were sent, unless the link is cut."""
        while self._due and self._in_transit and not self.cut:
            self._due -= 1
            self._in_transit.popleft()()

    def discard_messages(self) -> None:
        self._in_transit.clear()

    def _message_due(self) -> None:
        self._due += 1
        self.deliver()


class _Connection:
    """Both ends of a client's connection."""

    def __init__(self, client: ZooKeeperClientDouble, to_server: _Pipe, to_client: _Pipe) -> None:
        self.client = client
        self.to_server = to_server
        self.to_client = to_client
        self.session: _ServerSession | None = None
        self.data_watches: set[str] = set()
        self.child_watches: set[str] = set()

    def notify(self, event: WatchedEvent) -> None:
        """Send the event if the client watches the znode: once, even if both kinds of watch report its deletion."""
        watched = False
        if event.type is not EventType.CHILD and event.path in self.data_watches:
            self.data_watches.remove(event.path)
            watched = True
        if event.type in (EventType.CHILD, EventType.DELETED) and event.path in self.child_watches:
            self.child_watches.remove(event.path)
            watched = True
        if watched:
            self.to_client.send(lambda: self.client.receive_event(self, event))

    def discard_messages(self) -> None:
        self.to_server.discard_messages()
        self.to_client.discard_messages()


class ZooKeeperClientDouble:
    """A client of the double, with the interface `ZooKeeper`; get one from `ZooKeeperServerDouble.connect`."""

    def __init__(self, server: ZooKeeperServerDouble, timers: Timers, chroot: Chroot, session_timeout_ms: int) -> None:
        self.chroot = chroot
        self.session_timeout_ms = session_timeout_ms
        self.cut_to_server = False
        self.cut_to_client = False
        self.frozen = False
        self.connection: _Connection | None = None
        self._server = server
        self._timers = timers
        self._session = Session()
        self._session_id_to_resume = 0
        """The session in which the client connects again; 0 to begin a new one."""
        self._response_timer: Timer | None = None
        """Closes the connection of a link that was cut."""
        self._closed: asyncio.Future[None] | None = None
        self._data_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}

    @property
    def pending(self) -> list[asyncio.Future[Any]]:
        """The futures of requests without a response, and of callers that wait for a connection."""
        return self._session.pending

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def connected(self) -> bool:
        return self._session.connected

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        return self._session.listen(listener)

    async def until_connected(self) -> None:
        await self._session.until_connected()

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        created = await self._commit_one(Create(self.chroot.absolute(path), data, ephemeral, sequential))
        return self.chroot.relative(cast(str, created))

    async def create_at(self, path: str) -> None:
        """Create a znode without data at a path of the server, which starts with the chroot."""
        await self._commit_one(Create(path))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        at = self.chroot.absolute(path)

        def received(found: tuple[bytes, Stat]) -> tuple[bytes, Stat]:
            if watch is not None:
                self._data_watches.setdefault(at, []).append(watch)
            return found

        return await self._request(lambda connection: self._server.get(connection, at, watch is not None), received)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return cast(Stat, await self._commit_one(Set(self.chroot.absolute(path), data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._commit_one(Delete(self.chroot.absolute(path), version))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        at = self.chroot.absolute(path)

        def received(found: Stat | None) -> Stat | None:
            if watch is not None:
                self._data_watches.setdefault(at, []).append(watch)
            return found

        return await self._request(lambda connection: self._server.exists(connection, at, watch is not None), received)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        at = self.chroot.absolute(path)

        def received(found: list[str]) -> list[str]:
            if watch is not None:
                self._child_watches.setdefault(at, []).append(watch)
            return found

        return await self._request(
            lambda connection: self._server.children(connection, at, watch is not None), received
        )

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if not ops:
            return []
        results = await self._commit([op._replace(path=self.chroot.absolute(op.path)) for op in ops])
        return [self.chroot.relative(result) if isinstance(result, str) else result for result in results]

    async def close(self) -> None:
        if self._session.closed:
            return
        connection = self.connection if self.connected else None
        self._session.close()
        if connection is not None:
            self._closed = asyncio.get_running_loop().create_future()
            connection.to_server.send(lambda: self._server.close_session(connection))
            await self._closed
        elif self.connection is not None:
            self._abandon(self.connection)
        self._server.forget(self)

    # -- called by the server, and by faults --------------------------------------------------------------------------

    def reconnect(self) -> None:
        # A connection needs both directions; after a cut, `heal` tries again.
        cut = self.cut_to_server or self.cut_to_client
        if self.connection is None and self._server.up and not cut and not self._session.closed:
            connection = self.connection = _Connection(
                self, self._server.new_pipe(), self._server.new_pipe(self._timers)
            )
            connection.to_server.send(lambda: self._server.attach(connection, self._session_id_to_resume))

    def receive_session(self, connection: _Connection, session_id: int) -> None:
        if connection is self.connection:
            self._session_id_to_resume = session_id
            self._session.became_connected(session_id)
            self.link_changed()

    def receive_expiry(self, connection: _Connection) -> None:
        if connection is self.connection:
            self._session_id_to_resume = 0
            self._session.became_expired()
            connection.to_server.send(lambda: self._server.attach(connection, 0))

    def lose_connection(self, connection: _Connection | None) -> None:
        """Abandon the connection, if it is the current one, and open the next."""
        if connection is None or connection is not self.connection:
            return
        self._abandon(connection)
        self._data_watches.clear()
        self._child_watches.clear()
        self._session.became_disconnected()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self.reconnect()

    def crash(self) -> None:
        """Abandon the connection, as at the end of the process: its requests never complete."""
        self._session.crash()
        if self.connection is not None:
            self._abandon(self.connection)

    def link_changed(self) -> None:
        """Apply a cut or a repair of the link to the connection, also to a new one."""
        self.reconnect()
        connection = self.connection
        if connection is None:
            return
        connection.to_server.cut, connection.to_client.cut = self.cut_to_server, self.cut_to_client
        if connection.session is not None:
            self._server.update_session_timer(connection.session)
        if not (self.cut_to_server or self.cut_to_client):
            self._cancel_response_timer()
        elif self._response_timer is None:
            self._response_timer = self._timers.call_later(
                self.session_timeout_ms * 2 // 3, lambda: self.lose_connection(connection)
            )
        connection.to_server.deliver()
        connection.to_client.deliver()

    def receive_event(self, connection: _Connection, event: WatchedEvent) -> None:
        if connection is not self.connection:
            return
        called: list[Watch] = []
        if event.type is not EventType.CHILD:
            called += self._data_watches.pop(event.path, [])
        if event.type in (EventType.CHILD, EventType.DELETED):
            called += self._child_watches.pop(event.path, [])
        for watch in called:
            call(watch, event._replace(path=self.chroot.relative(event.path)))

    def _abandon(self, connection: _Connection) -> None:
        connection.discard_messages()
        self.connection = None
        self._cancel_response_timer()
        session = connection.session
        if session is not None:
            connection.session = session.connection = None
            self._server.update_session_timer(session)

    def _cancel_response_timer(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None

    async def _commit_one(self, op: Op) -> OpResult:
        try:
            (result,) = await self._commit([op])
        except MultiError as failed:
            raise failed.error from None
        return result

    async def _commit(self, ops: Sequence[Op]) -> list[OpResult]:
        if request_bytes(ops) > MAX_REQUEST_BYTES:
            raise RequestTooLargeError(f"about {request_bytes(ops)} bytes, at most {MAX_REQUEST_BYTES} are allowed")
        return await self._request(lambda connection: self._server.commit(connection, ops), lambda results: results)

    async def _request(self, do: Callable[[_Connection], _T], received: Callable[[_T], _T]) -> _T:
        """Call `do` on the server, and `received` when the response arrives."""
        future = self._session.request()
        connection = self.connection
        assert connection is not None

        def arrived() -> None:
            if connection.session is None:
                return  # The server has closed this connection, and the client is notified next.
            try:
                found = do(connection)
            except ZooKeeperError as error:
                refusal = self._relative(error)
                connection.to_client.send(lambda: None if future.done() else future.set_exception(refusal))
            else:
                connection.to_client.send(lambda: self._receive(connection, future, lambda: received(found)))

        connection.to_server.send(arrived)
        return cast(_T, await future)

    def _relative(self, error: ZooKeeperError) -> ZooKeeperError:
        match error:
            case NodeError(path=path):
                return type(error)(self.chroot.relative(path))
            case MultiError(index=index, error=NodeError(path=path) as cause):
                return MultiError(index, type(cause)(self.chroot.relative(path)))
        return error

    def _receive(self, connection: _Connection, future: asyncio.Future[_T], result: Callable[[], _T]) -> None:
        if connection is self.connection:
            found = result()
            if not future.done():
                future.set_result(found)
