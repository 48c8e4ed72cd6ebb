"""A channel to one other broker, which opens a connection when a request needs one.

Owns the connection, the order of requests that wait for it, and the count of failures, by which callers back off.
Leaves framing to `broker_connection`, and retries to its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_controller.image import ClusterImage, Endpoint
from odradek_wire.message import Message

R = TypeVar("R", bound=Message)

WAITING_MAX = 1_000
"""The number of requests that may wait for the connection of a channel; a further one fails immediately."""
DEFAULT_BACKOFF_MS = (50,)


class ChannelConnection(Protocol):
    """The methods of `BrokerConnection` that a channel calls."""

    @property
    def closed(self) -> bool: ...

    async def request(self, request: Message, version: int, response: type[R], timeout_s: float) -> R: ...

    def close(self) -> None: ...


Connect = Callable[[Endpoint, str, float], Awaitable[ChannelConnection]]
"""Opens a connection to an endpoint, with a client id and a timeout in seconds. Raises BrokerConnectionError."""


async def connect(endpoint: Endpoint, client_id: str, timeout_s: float) -> ChannelConnection:
    """Open a `BrokerConnection`."""
    return await BrokerConnection.connect(endpoint.host, endpoint.port, client_id, timeout_s)


class BrokerChannel:
    """Sends requests to one broker, one at a time and each once. After a failure the next request opens another
    connection."""

    def __init__(
        self,
        destination: str,
        endpoint: Callable[[], Endpoint | None],
        *,
        client_id: str,
        timeout_s: float,
        connect_timeout_s: float | None = None,
        backoff_ms: Sequence[int] = DEFAULT_BACKOFF_MS,
        connect: Connect = connect,
    ) -> None:
        """`destination` names the broker in errors. `endpoint` returns its present endpoint, None while it has none.

        `timeout_s` is the time limit for a response, and for connecting unless `connect_timeout_s` is given.
        `backoff_ms` has the delays after the first, the second … failure in a row; the last one applies to all further
        failures.
        """
        self._destination = destination
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeout_s = timeout_s if connect_timeout_s is None else connect_timeout_s
        self._backoff_ms = backoff_ms
        self._open = connect
        self._connection: ChannelConnection | None = None
        self._connected_to: Endpoint | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self.failures = 0
        """The failed requests and attempts to connect since the last response."""

    @property
    def connected(self) -> bool:
        """Whether there is an open connection to the broker's present endpoint."""
        connection = self._connection
        if connection is None or connection.closed:
            return False
        endpoint = self._endpoint()
        return endpoint is self._connected_to or endpoint == self._connected_to

    @property
    def backoff_ms(self) -> int:
        """The time that the caller should wait before its next attempt; 0 after a response."""
        return self._backoff_ms[min(self.failures, len(self._backoff_ms)) - 1] if self.failures else 0

    async def connect(self) -> None:
        """Open a connection unless there is one. Raises BrokerConnectionError."""
        async with self._turn:
            if not self.connected:
                await self._connect()

    async def request(self, request: Message, version: int, response: type[R]) -> R:
        """Send one request and return its response, whose `records` are views that the next request overwrites.

        Raises BrokerConnectionError. After an exception or a cancellation the connection is closed.
        """
        if self._waiting >= WAITING_MAX:
            raise BrokerConnectionError(f"at most {WAITING_MAX} requests may wait for {self._destination}")
        self._waiting += 1
        try:
            async with self._turn:
                if not self.connected:
                    await self._connect()
                connection = self._connection
                assert connection is not None
                try:
                    received = await connection.request(request, version, response, self._timeout_s)
                except BaseException as error:
                    self._fail(error)
                    raise
                self.failures = 0
                return received
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Close the connection; a request in flight fails. The next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connect(self) -> None:
        self.close()
        try:
            endpoint = self._endpoint()
            if endpoint is None:
                raise BrokerConnectionError(f"{self._destination} has no endpoint in the metadata")
            connection = await self._open(endpoint, self._client_id, self._connect_timeout_s)
        except BaseException as error:
            self._fail(error)
            raise
        self._connection, self._connected_to = connection, endpoint

    def _fail(self, error: BaseException) -> None:
        self.close()
        if isinstance(error, Exception):
            self.failures += 1


class BrokerChannels:
    """Opens channels to the other brokers of the cluster, which it finds in the metadata image."""

    def __init__(self, node_id: int, listener: str, image: Callable[[], ClusterImage]) -> None:
        """`listener` is the inter-broker listener."""
        self._node_id = node_id
        self._listener = listener
        self._image = image

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the broker's endpoint on the inter-broker listener; None if the present metadata has none."""
        registration = self._image().brokers.get(broker_id)
        if registration is not None:
            for endpoint in registration.listeners:
                if endpoint.name == self._listener:
                    return endpoint
        return None

    def to(
        self,
        broker_id: int,
        purpose: str,
        *,
        timeout_s: float,
        connect_timeout_s: float | None = None,
        backoff_ms: Sequence[int] = DEFAULT_BACKOFF_MS,
    ) -> BrokerChannel:
        """Return a new channel, whose client id ends with `purpose`."""
        return BrokerChannel(
            f"broker {broker_id}",
            lambda: self.endpoint(broker_id),
            client_id=f"broker-{self._node_id}-{purpose}",
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            backoff_ms=backoff_ms,
        )
