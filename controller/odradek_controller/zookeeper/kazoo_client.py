"""`client.ZooKeeper` over the network: kazoo, a Python library, speaks the protocol on its own thread.

Owns the hand-over from that thread to the loop (`_LoopHandler.put`), and the promises of the interface that kazoo does
not keep. Leaves the order of session events to `session`. No other module imports kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import CheckVersion as KazooCheck
from kazoo.protocol.serialization import Create as KazooCreate
from kazoo.protocol.serialization import Delete as KazooDelete
from kazoo.protocol.serialization import SetData as KazooSet
from kazoo.protocol.states import EventType as KazooEventType
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from odradek_log.reporting import Reporter, StandardReporter

from .chroot import Chroot, parse_connect_string
from .client import (
    ANY_VERSION,
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
    OpResult,
    RequestTooLargeError,
    SessionExpiredError,
    SessionListener,
    Set,
    Stat,
    Watch,
    WatchedEvent,
    ZooKeeperError,
    request_bytes,
)
from .session import Session

MAX_IN_FLIGHT_REQUESTS = 10
"""Kafka's zookeeper.max.in.flight.requests. It also keeps kazoo's pipe to its thread from filling up."""

_RETRY_SECONDS = 0.05
_RETRY_MAX_SECONDS = 1.0
_TCP_CONNECT_SECONDS = 2.0
"""kazoo's own limit is the session timeout: if one of several servers is down, it would lose the session."""

_NODE_ERRORS: dict[type[Exception], type[NodeError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.BadVersionError: BadVersionError,
    exceptions.NotEmptyError: NotEmptyError,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
}
_EVENTS = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHANGED: EventType.CHANGED,
    KazooEventType.CHILD: EventType.CHILD,
}

_Start = Callable[[], Any]


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler for threads, with the event loop in place of its two worker threads.

    With kazoo's separate queues for watch events and responses their order is lost. Here both go to the loop in the
    order in which kazoo's connection thread receives them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.callback_queue = self.completion_queue = self

    @property
    def running(self) -> bool:
        return True

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> socket.socket:
        connection: socket.socket = super().create_connection(
            *args, timeout=min(timeout, _TCP_CONNECT_SECONDS), **kwargs
        )
        return connection

    def put(self, callback: Callable[[], object]) -> None:
        # The loop may be closed while this client is still open.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)


class _ReportHandler(logging.Handler):
    """Passes kazoo's log records to a reporter, on the loop."""

    def __init__(self, handler: _LoopHandler, reporter: Reporter) -> None:
        super().__init__()
        self._handler = handler
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        report = self._reporter.info
        if record.levelno >= logging.WARNING:
            report = self._reporter.error if record.levelno >= logging.ERROR else self._reporter.warning
        fields: dict[str, object] = {"message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            fields["exc_info"] = record.exc_info[1]
        self._handler.put(partial(report, "connection to ZooKeeper", **fields))


def _logger(handler: _LoopHandler, reporter: Reporter) -> logging.Logger:
    """Return a logger outside the process's logging. Its level suppresses kazoo's message for each request."""
    logger = logging.Logger("kazoo", logging.INFO)
    logger.addHandler(_ReportHandler(handler, reporter))
    return logger


class KazooZooKeeper:
    """`client.ZooKeeper` on real servers; get one from `connect`."""

    def __init__(
        self,
        servers: str,
        chroot: Chroot,
        session_timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        reporter: Reporter,
    ) -> None:
        self._servers = servers
        self._chroot = chroot
        self._session_timeout_ms = session_timeout_ms
        self._session = Session()
        self._handler = _LoopHandler(loop)
        self._logger = _logger(self._handler, reporter)
        self._kazoo = self._new_kazoo()
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._waiting: deque[tuple[asyncio.Future[Any], _Start]] = deque()
        # kazoo begins the next session before the loop knows that the last one has expired. Its thread and the loop
        # both count expired sessions; a request goes to kazoo only while the counts are equal.
        self._expired_lock = threading.Lock()
        self._sessions_expired_in_kazoo = 0
        self._sessions_expired_on_loop = 0

    @classmethod
    async def connect(
        cls,
        connect_string: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        reporter: Reporter | None = None,
    ) -> KazooZooKeeper:
        """Return a client with a session; create its chroot if it is missing, as Kafka does.

        `connect_string` is HOST:PORT,HOST:PORT/chroot (`zookeeper.connect`). The server limits the session timeout to
        between 2 and 20 of its ticks. Raises ValueError, or TimeoutError when no server responds in time.
        """
        servers, chroot = parse_connect_string(connect_string)
        loop = asyncio.get_running_loop()
        client = cls(servers, chroot, session_timeout_ms, loop, reporter or StandardReporter())
        client._kazoo.start_async()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await client.until_connected()
                for path in chroot.nodes():
                    with contextlib.suppress(NodeExistsError):
                        await client._create(path)
        except BaseException as error:
            await client.close()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"no connection to ZooKeeper at {servers} in {connection_timeout_ms} ms") from None
            raise
        return client

    def _new_kazoo(self) -> KazooClient:
        retry = KazooRetry(
            max_tries=-1,
            delay=_RETRY_SECONDS,
            max_delay=_RETRY_MAX_SECONDS,
            sleep_func=self._handler.sleep_func,
        )
        timeout = self._session_timeout_ms / 1000
        kazoo = KazooClient(
            self._servers, timeout=timeout, handler=self._handler, connection_retry=retry, logger=self._logger
        )
        kazoo.add_listener(partial(self._state_changed, kazoo))
        return kazoo

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
        return self._chroot.relative(
            await self._create(self._chroot.absolute(path), data, ephemeral=ephemeral, sequential=sequential)
        )

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._request(
            path, partial(self._kazoo.get_async, self._absolute(path), watch=self._watcher(watch))
        )
        return data or b"", _stat(stat)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        self._check_size([Set(self._absolute(path), data)])
        return _stat(await self._request(path, partial(self._kazoo.set_async, self._absolute(path), data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._request(path, partial(self._kazoo.delete_async, self._absolute(path), version))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        start = partial(self._kazoo.exists_async, self._absolute(path), watch=self._watcher(watch))
        stat: ZnodeStat | None = await self._request(path, start)
        return _stat(stat) if stat else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        start = partial(self._kazoo.get_children_async, self._absolute(path), watch=self._watcher(watch))
        names: list[str] = await self._request(path, start)
        return sorted(names)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results = await self._multi([op._replace(path=self._absolute(op.path)) for op in ops])
        return [self._chroot.relative(result) if isinstance(result, str) else result for result in results]

    async def close(self) -> None:
        if not self._session.closed:
            self._session.close()
            self._waiting.clear()
            # kazoo's `stop` waits for the server's response, or for the end of an attempt to connect. If its timeout
            # passes first, kazoo raises this error, and its daemon thread ends later.
            with contextlib.suppress(exceptions.WriterNotClosedException):
                await asyncio.to_thread(self._kazoo.stop)
                self._kazoo.close()

    def _absolute(self, path: str) -> str:
        return self._chroot.absolute(path)

    async def _create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        # kazoo's own `create` completes in two steps; the second may come after a later event.
        try:
            (created,) = await self._multi([Create(path, data, ephemeral, sequential)])
        except MultiError as failed:
            raise failed.error from None
        assert isinstance(created, str)
        return created

    async def _multi(self, ops: list[Op]) -> list[OpResult]:
        """As `multi`, with absolute paths."""
        if not ops:
            return []
        self._check_size(ops)
        transaction = self._kazoo.transaction()
        # kazoo's `create` and `set_data` refuse znodes without data.
        transaction.operations += [_kazoo_operation(op) for op in ops]
        results: list[Any] = await self._request(ops[0].path, transaction.commit_async)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, exceptions.RolledBackError):
                error = _error(result, self._chroot.relative(ops[index].path))
                raise MultiError(index, error) if isinstance(error, NodeError) else error
        return [
            _stat(result) if isinstance(result, ZnodeStat) else result if isinstance(result, str) else None
            for result in results
        ]

    def _check_size(self, ops: Sequence[Op]) -> None:
        if request_bytes(ops) > MAX_REQUEST_BYTES:
            raise RequestTooLargeError(f"about {request_bytes(ops)} bytes, at most {MAX_REQUEST_BYTES} are allowed")

    async def _request(self, path: str, start: _Start) -> Any:
        future = self._session.request()
        self._waiting.append((future, start))
        self._send()
        try:
            return await future
        except exceptions.KazooException as error:
            raise _error(error, path) from None

    def _send(self) -> None:
        while self._waiting and len(self._in_flight) < MAX_IN_FLIGHT_REQUESTS:
            future, start = self._waiting.popleft()
            if future.done():
                continue
            with self._expired_lock:
                if self._sessions_expired_in_kazoo != self._sessions_expired_on_loop:
                    future.set_exception(SessionExpiredError("the session has expired"))
                    continue
                result = start()
            self._in_flight.add(future)
            result.rawlink(partial(self._complete, future))

    def _complete(self, future: asyncio.Future[Any], result: Any) -> None:
        error = result.exception
        if isinstance(error, exceptions.ConnectionLoss):
            # kazoo reports the lost connection later than the lost request.
            self._disconnected()
        self._in_flight.discard(future)
        if not future.done():
            if error is None:
                future.set_result(result.value)
            else:
                future.set_exception(error)
        self._send()

    def _watcher(self, watch: Watch | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None

        def call(event: Any) -> None:
            # kazoo uses other types of events to report a lost connection.
            if event.type in _EVENTS and not self._session.closed:
                watch(WatchedEvent(_EVENTS[event.type], self._chroot.relative(event.path)))

        return call

    def _state_changed(self, kazoo: KazooClient, state: str) -> None:
        """Pass a change of kazoo's state to the loop. Called on kazoo's connection thread."""
        if state == KazooState.CONNECTED:
            session_id, _ = kazoo.client_id
            self._handler.put(partial(self._connected, session_id))
        elif state == KazooState.SUSPENDED:
            self._handler.put(self._disconnected)
        else:
            with self._expired_lock:
                self._sessions_expired_in_kazoo += 1
            self._handler.put(self._expired)
            if kazoo.client_state == KeeperState.CLOSED:
                self._handler.put(self._stopped)

    def _connected(self, session_id: int) -> None:
        if not self._session.closed:
            self._session.became_connected(session_id)

    def _disconnected(self) -> None:
        self._session.became_disconnected()
        self._waiting.clear()
        self._in_flight.clear()

    def _expired(self) -> None:
        self._disconnected()
        self._sessions_expired_on_loop += 1
        self._session.became_expired()

    def _stopped(self) -> None:
        """Start another kazoo client, because kazoo's thread has ended: it received a response that it cannot read."""
        if not self._session.closed:
            self._kazoo.close()
            self._kazoo = self._new_kazoo()
            self._kazoo.start_async()


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.cversion, stat.ephemeralOwner, stat.numChildren)


def _kazoo_operation(op: Op) -> Any:
    match op:
        case Create(path, data, ephemeral, sequential):
            return KazooCreate(path, data, OPEN_ACL_UNSAFE, int(ephemeral) | int(sequential) << 1)
        case Set(path, data, version):
            return KazooSet(path, data, version)
        case Delete(path, version):
            return KazooDelete(path, version)
        case Check(path, version):
            return KazooCheck(path, version)


def _error(error: Exception, path: str) -> ZooKeeperError:
    node_error = _NODE_ERRORS.get(type(error))
    if node_error is not None:
        return node_error(path)
    if isinstance(error, exceptions.SessionExpiredError):
        return SessionExpiredError("the session has expired")
    if isinstance(error, exceptions.ConnectionLoss):
        return ConnectionLossError("the connection is lost")
    return ZooKeeperError(f"{type(error).__name__} at {path}")
