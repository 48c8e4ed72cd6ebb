"""The sockets of one broker: listeners, limits of connections, idle connections, shutdown.

Owns all connections and the parts that they share (routes, buffers, memory budget). Leaves requests to `connection`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from odradek_broker.apis.context import BrokerServices
from odradek_broker.descriptors import DescriptorBound, descriptor_limit
from odradek_broker.memory import DEFAULT_BUDGET, MemoryBudget, ReceiveBuffers
from odradek_broker.network.connection import Connection
from odradek_broker.network.interceptors import Interceptors
from odradek_broker.network.listeners import Listener
from odradek_broker.network.long_requests import LongRequests
from odradek_broker.network.repeated_warnings import RepeatedWarnings
from odradek_broker.network.routes import Routes
from odradek_broker.security.authenticator import ChannelBuilder

IDLE_SWEEPS = 8
"""Sweeps for idle connections per `connections.max.idle.ms`: a connection closes at most an eighth of it too late."""
BACKLOG = 1024
"""The backlog unless `socket.listen.backlog.size` is set. Kafka's default is 50; tests open more at a time."""
ACCEPT_BATCH = 8
"""The number of connections that asyncio accepts in one turn of the event loop. By default that is the backlog: a flood
would take as many descriptors before the server can close the first connection beyond the bound of `descriptors`."""
SOCKET_BUFFERS = {
    "socket.receive.buffer.bytes": socket.SO_RCVBUF,
    "socket.send.buffer.bytes": socket.SO_SNDBUF,
}


class ServedBroker(BrokerServices, Protocol):
    """The parts of the broker that a server needs: the services of handlers, and the interceptors."""

    interceptors: Interceptors


class Server:
    """The server of one broker. `listeners` have their bound ports after `bind`."""

    def __init__(
        self,
        broker: ServedBroker,
        routes: Routes,
        listeners: Iterable[Listener],
        channel_builders: Mapping[str, ChannelBuilder],
        inter_broker_routes: Routes | None = None,
    ) -> None:
        """`channel_builders` has one for each listener, by name. `inter_broker_routes` are the routes of the
        inter-broker and the control-plane listener; None if these serve the same APIs as the other listeners."""
        config = broker.config
        self.broker = broker
        self.routes = [routes] if inter_broker_routes is None else [routes, inter_broker_routes]
        control_plane = config.text("control.plane.listener.name").upper()
        self._inter_broker_listeners = {config.inter_broker_listener, control_plane}
        self.listeners = list(listeners)
        self._channel_builders = channel_builders
        self.loop = asyncio.get_running_loop()
        queued = config.integer("queued.max.request.bytes")
        self.buffers = ReceiveBuffers(MemoryBudget(queued if queued > 0 else DEFAULT_BUDGET))
        self.request_max_bytes = config.request_max_bytes
        self.connections: dict[Connection, None] = {}
        """The open connections that `max.connections` admits, oldest first."""
        self._waiting: deque[Connection] = deque()
        self._per_address: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self.long_requests = LongRequests(self.loop, config.request_elements_max)
        self.repeated_warnings = RepeatedWarnings(self.loop.call_later)
        self._descriptors = DescriptorBound(descriptor_limit())
        self._sweep: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None

    def requests_handled(self) -> int:
        """Return the number of requests since the start."""
        return sum(route.requests for routes in self.routes for route in routes.compiled.values())

    async def bind(self) -> None:
        """Bind every listener, but accept no connection yet. Raises OSError, and then leaves no socket open."""
        try:
            for number, listener in enumerate(self.listeners):
                self.listeners[number] = await self._bind(listener)
        except BaseException:
            self._close_listeners()
            raise

    async def serve(self) -> None:
        """Accept connections."""
        for server in self._servers:
            await server.start_serving()
            if isinstance(self.loop, asyncio.SelectorEventLoop):
                _listen(server, self._backlog)
        self._schedule_sweep()

    async def stop(self, grace_ms: int = 5000) -> None:
        """Close the listeners, wait at most `grace_ms` for the requests in progress, close every connection."""
        self._close_listeners()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in [*self._waiting, *(c for c in self.connections if not c.busy)]:
            connection.close()
        for connection in list(self.connections):
            connection.drain()
        # After `drain`: a connection must not handle its next request when its delayed operation expires.
        self.broker.purgatory.expire_all()
        if self.connections:
            self._all_gone = self.loop.create_future()
            try:
                await asyncio.wait_for(self._all_gone, grace_ms / 1000)
            except TimeoutError:
                self.broker.log.warning("aborted connections at shutdown", count=len(self.connections))
        for connection in list(self.connections):
            connection.abort()
        self.repeated_warnings.close()
        self.long_requests.close()

    def abort(self) -> None:
        """Abort every connection, as a crash does."""
        self._close_listeners()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in [*self._waiting, *self.connections]:
            connection.abort()
        self.repeated_warnings.close()
        self.long_requests.close()

    @property
    def _backlog(self) -> int:
        config = self.broker.config
        is_set = "socket.listen.backlog.size" in config.static
        return config.integer("socket.listen.backlog.size") if is_set else BACKLOG

    async def _bind(self, listener: Listener) -> Listener:
        config = self.broker.config
        channel_builder = self._channel_builders[listener.name]
        server = await self.loop.create_server(
            lambda: Connection(self, listener.name, channel_builder).receiver,
            listener.host or None,
            listener.port,
            ssl=channel_builder.ssl_context,
            backlog=ACCEPT_BATCH if isinstance(self.loop, asyncio.SelectorEventLoop) else self._backlog,
            start_serving=False,
        )
        for name, option in SOCKET_BUFFERS.items():
            # By default the operating system chooses sizes that grow with the traffic.
            if name in config.static and config.integer(name) > 0:
                for listening in server.sockets:
                    listening.setsockopt(socket.SOL_SOCKET, option, config.integer(name))
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        if listener.port == 0 and len(server.sockets) > 1:
            # On every interface there is a socket for IPv4 and one for IPv6: both need the port that the first one got.
            server.close()
            self._servers.remove(server)
            return await self._bind(replace(listener, port=port))
        return listener.bound(port)

    def routes_on(self, listener: str) -> Routes:
        return self.routes[-1 if listener in self._inter_broker_listeners else 0]

    # -- connections call these ---------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        config = self.broker.config
        self._per_address[connection.address] += 1
        if self._descriptors.is_exceeded_by(connection.transport):
            connection.refuse(
                "too few file descriptors are left; closing the connection",
                limit=self._descriptors.limit,
                hint="raise ulimit -n",
            )
        elif self._per_address[connection.address] > config.max_connections_from(connection.address):
            connection.refuse(
                "max.connections.per.ip is reached; closing the connection",
                limit=config.max_connections_from(connection.address),
            )
        elif len(self.connections) >= config.max_connections:
            # As with Kafka's acceptor, which blocks, the client is connected and waits until another connection closes.
            self._waiting.append(connection)
            connection.hold()
            return
        self.connections[connection] = None

    def disconnected(self, connection: Connection) -> None:
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]
        if connection in self.connections:
            del self.connections[connection]
            while self._waiting and len(self.connections) < self.broker.config.max_connections:
                waiting = self._waiting.popleft()
                self.connections[waiting] = None
                waiting.release()
        else:
            self._waiting.remove(connection)
        if not self.connections and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    # -- idle connections ---------------------------------------------------------------------------------------------

    def _schedule_sweep(self) -> None:
        idle_ms = self.broker.config.connections_max_idle_ms
        if idle_ms > 0:
            self._sweep = self.loop.call_later(idle_ms / IDLE_SWEEPS / 1000, self._close_idle)

    def _close_idle(self) -> None:
        now = self.loop.time()
        longest = self.broker.config.connections_max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.receiver.idle_for(now) >= longest:
                # `close` would wait forever for a client that does not read its responses.
                connection.abort() if connection.receiver.write_blocked else connection.close()
        self._schedule_sweep()

    def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()


def _listen(server: asyncio.Server, backlog: int) -> None:
    """Set the backlog of a server that asyncio has started with `ACCEPT_BATCH`."""
    for listening in server.sockets:
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(backlog)
