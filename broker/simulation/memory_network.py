"""A network in memory: hosts by name, connections with latency, and faults between two hosts.

Keeps the promises of TCP (order, back-pressure, FIN or reset) and no more: arrival times are random, and a peer may
never hear of the end of a connection. A partition delays bytes until it heals, as retransmission does; a host without
power sends nothing. `VirtualLoop` passes `create_server` and `create_connection` to it.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from typing import Any, Final

from odradek_broker.inter_broker.broker_connection import BrokerConnection
from simulation.process import PROCESS
from simulation.trace import Trace

PIPE_BYTES = 128 << 10
"""The largest number of bytes in flight or unread in one direction; the sender buffers the rest."""
HIGH_WATER_BYTES = 64 << 10
FIN: Final = "fin"
RESET: Final = "reset"
Arriving = bytes | str
Direction = tuple[str, str]
"""Source host and destination host."""


class MemoryNetwork:
    """All hosts, servers and connections. `attach` it to its loop."""

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        self._chance = chance
        self._trace = trace
        self.loop: asyncio.AbstractEventLoop
        self._servers: dict[tuple[str, int], MemoryServer] = {}
        self._transports: dict[MemoryTransport, None] = {}
        self._blocked: dict[Direction, int] = {}
        self._slow: dict[Direction, float] = {}
        self._powered_off: set[str] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    # -- faults -------------------------------------------------------------------------------------------------------

    def block(self, directions: list[Direction]) -> None:
        """Block these directions until the same number of `unblock` calls."""
        for direction in directions:
            self._blocked[direction] = self._blocked.get(direction, 0) + 1

    def unblock(self, directions: list[Direction]) -> None:
        for direction in directions:
            self._blocked[direction] -= 1
            if not self._blocked[direction]:
                del self._blocked[direction]
        self._resume_deliveries()

    def slow_down(self, direction: Direction, seconds: float) -> None:
        """Add latency to a direction; 0 removes it."""
        self._slow[direction] = seconds

    def power_off(self, host: str) -> None:
        """Let the host send nothing more, not even the end of its connections."""
        self._powered_off.add(host)

    def power_on(self, host: str) -> None:
        self._powered_off.discard(host)
        self._resume_deliveries()

    def reset_connections(self, a: str, b: str) -> int:
        """Reset all connections between two hosts. Return their number."""
        transports = [each for each in self._transports if (each.host, each.remote) in ((a, b), (b, a))]
        for transport in transports:
            transport.break_connection()
        return len(transports) // 2

    def is_open(self, source: str, destination: str) -> bool:
        """Return whether bytes from `source` may arrive at `destination` now."""
        return (source, destination) not in self._blocked and destination not in self._powered_off

    def _resume_deliveries(self) -> None:
        for transport in list(self._transports):
            transport.schedule()

    # -- servers and connections --------------------------------------------------------------------------------------

    def listen(self, factory: Callable[[], Any], host: str, port: int, *, start_serving: bool) -> MemoryServer:
        if port == 0:
            port = 9092
            while (host, port) in self._servers:
                port += 1
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        server = self._servers[host, port] = MemoryServer(self, factory, host, port, start_serving)
        return server

    def forget_server(self, host: str, port: int) -> None:
        self._servers.pop((host, port), None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[MemoryTransport, Any]:
        protocol = factory()
        source = host_of(protocol)
        retransmission_s = 1.0
        await asyncio.sleep(self.delay_s(source, host))
        while not (self.is_open(source, host) and self.is_open(host, source)):
            await asyncio.sleep(retransmission_s)
            retransmission_s *= 2
        server = self._servers.get((host, port))
        await asyncio.sleep(self.delay_s(host, source))
        if server is None or not server.is_serving():
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no server listens on {host}:{port}")
        near = MemoryTransport(
            network=self, protocol=protocol, host=source, remote=host, port=port, context=copy_context()
        )
        far = MemoryTransport(network=self, protocol=None, host=host, remote=source, port=port, context=server.context)
        near.other, far.other = far, near
        self._transports[near] = self._transports[far] = None
        self.loop.call_soon(far.accept, server, context=server.context)
        protocol.connection_made(near)
        return near, protocol

    def delay_s(self, source: str, destination: str) -> float:
        """Return the latency of the next delivery in this direction."""
        chance = self._chance
        delay = 0.0001 + chance.expovariate(4000)
        if chance.random() < 0.01:
            delay += chance.uniform(0.002, 0.05)
        return delay + self._slow.get((source, destination), 0.0)

    def is_powered_off(self, host: str) -> bool:
        return host in self._powered_off

    def split(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes whole, or sometimes in two pieces."""
        if len(data) > 1 and self._chance.random() < 0.03:
            at = self._chance.randrange(1, len(data))
            yield data[:at]
            data = data[at:]
        yield data

    def reset_discards_data(self) -> bool:
        return self._chance.random() < 0.5

    def arrived(self, transport: MemoryTransport, size: int) -> None:
        self._trace.mix(size)

    def forget(self, transport: MemoryTransport) -> None:
        self._transports.pop(transport, None)


class MemoryServer:
    """The server that `create_server` returns."""

    def __init__(self, network: MemoryNetwork, factory: Callable[[], Any], host: str, port: int, serving: bool) -> None:
        self._network = network
        self._serving = serving
        self.factory = factory
        self.context = copy_context()
        self.sockets = [_Listening(host, port)]

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        self._serving = True

    def close(self) -> None:
        self._serving = False
        self._network.forget_server(*self.sockets[0].getsockname())


class _Listening:
    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class MemoryTransport(asyncio.Transport):
    """One end of a connection. `other` is the other end; the protocol is called in `context`."""

    other: MemoryTransport

    def __init__(
        self, *, network: MemoryNetwork, protocol: Any, host: str, remote: str, port: int, context: Context
    ) -> None:
        super().__init__({"peername": (remote, port)})
        self._context = context
        self._network = network
        self._loop = network.loop
        self._protocol = protocol
        self.host = host
        self.remote = remote
        self._arriving: deque[tuple[float, Arriving]] = deque()
        self._arriving_bytes = 0
        self._scheduled: asyncio.TimerHandle | None = None
        self._last_arrival = 0.0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._lost = False

    # -- calls of the protocol ----------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        for piece in self._network.split(bytes(data)):
            self._unsent.append(piece)
        self._unsent_bytes += len(data)
        self._push()
        if self._unsent_bytes > HIGH_WATER_BYTES and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.schedule()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._end(None, FIN)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._forget_unsent()
        if self._network.reset_discards_data():
            self.other.lose_bytes_in_flight()
        self._end(None, RESET)

    # -- calls of the network -----------------------------------------------------------------------------------------

    def accept(self, server: MemoryServer) -> None:
        """Accept the connection, or reset it if the server has closed."""
        if self._lost:
            return
        if server.is_serving():
            self._protocol = server.factory()
            self._protocol.connection_made(self)
        else:
            self._closing = True
            self._end(None, RESET)

    def break_connection(self) -> None:
        """Reset both ends of the connection."""
        if not self._lost:
            self._closing = True
            self._forget_unsent()
            self._arriving.clear()
            self._end(ConnectionResetError(errno.ECONNRESET, "connection reset"), None)

    def lose_bytes_in_flight(self) -> None:
        self._arriving = deque(each for each in self._arriving if isinstance(each[1], str))

    def room(self) -> int:
        return PIPE_BYTES - self._arriving_bytes

    def arrive_later(self, what: Arriving, delay_s: float) -> None:
        self._last_arrival = max(self._last_arrival, self._loop.time() + delay_s)
        self._arriving.append((self._last_arrival, what))
        if isinstance(what, bytes):
            self._arriving_bytes += len(what)
        self.schedule()

    def schedule(self) -> None:
        """Schedule the next delivery."""
        if self._arriving and self._scheduled is None:
            when = max(self._arriving[0][0], self._loop.time())
            self._scheduled = self._loop.call_at(when, self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._scheduled = None
        while self._arriving and self._arriving[0][0] <= self._loop.time():
            if not self._network.is_open(self.remote, self.host):
                return  # until the direction is open again
            what = self._arriving[0][1]
            if self._closing:
                self._arriving.popleft()
                if what not in (FIN, RESET) and self._lost:
                    self._send_off(RESET)
            elif isinstance(what, str):
                self._arriving.popleft()
                self._ended(what)
            elif not self._reading:
                return  # until `resume_reading`
            else:
                self._arriving.popleft()
                self._deliver(what)
        self.schedule()

    def _deliver(self, data: bytes) -> None:
        self._network.arrived(self, len(data))
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and self._reading and not self._closing:
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                view = view[size:]
                protocol.buffer_updated(size)
            if view and not self._closing:
                self._arriving.appendleft((self._loop.time(), bytes(view)))
            self._arriving_bytes -= len(data) - len(view)
        else:
            self._arriving_bytes -= len(data)
            protocol.data_received(data)
        if self.other._unsent:
            self._loop.call_soon(self.other._push, context=self.other._context)

    def _ended(self, how: str) -> None:
        if how == FIN:
            if not self._protocol.eof_received():
                self.close()
        else:
            self._closing = True
            self._forget_unsent()
            self._end(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"), None)

    def _push(self) -> None:
        """Send as many bytes as the pipe has room for."""
        while self._unsent and self.other.room() > 0:
            piece = self._unsent.popleft()
            room = self.other.room()
            if len(piece) > room:
                self._unsent.appendleft(piece[room:])
                piece = piece[:room]
            self._unsent_bytes -= len(piece)
            self._send_off(piece)
        if self._writing_paused and self._unsent_bytes <= HIGH_WATER_BYTES // 4 and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent and not self._lost:
            self._end(None, FIN)

    def _send_off(self, what: Arriving) -> None:
        if not self._network.is_powered_off(self.host):
            self.other.arrive_later(what, self._network.delay_s(self.host, self.remote))

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    def _end(self, error: Exception | None, signal: str | None) -> None:
        self._lost = True
        if signal is not None:
            self._send_off(signal)
        self._loop.call_soon(self._call_connection_lost, error, context=self._context)

    def _call_connection_lost(self, error: Exception | None) -> None:
        if self.other._lost:
            self._network.forget(self)
            self._network.forget(self.other)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


def host_of(protocol: Any) -> str:
    """Return the host that connects: that of the process. In an embedded cluster, one process has all hosts; there the
    client id of a `BrokerConnection` names it: `broker-1-fetcher-0`."""
    process = PROCESS.get()
    if process is not None and len(process.hosts) == 1:
        return process.hosts[0]
    if isinstance(protocol, BrokerConnection):
        return "-".join(protocol.client_id.split("-")[:2])
    host = protocol.host
    assert isinstance(host, str)
    return host
