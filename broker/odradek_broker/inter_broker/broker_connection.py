"""A connection to another broker, with at most one request in flight.

Owns framing, correlation ids and one buffer for all responses. Leaves finding the broker's endpoint, connecting again
after a failure, and back-off to `channel`.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from odradek_wire.apis import response_header_version
from odradek_wire.codec import decoder
from odradek_wire.errors import DecodeError, ErrorCode
from odradek_wire.frames import SIZE_BYTES, encode_request
from odradek_wire.message import Message

R = TypeVar("R", bound=Message)

_BUFFER_BYTES = 64 << 10
_KEPT_BUFFER_BYTES_MAX = 1 << 20
"""A larger buffer is replaced after its response."""
_RESPONSE_BYTES_MAX = 1 << 30


class BrokerConnectionError(ConnectionError):
    """The other broker cannot be reached, closes the connection, or does not send a valid response in time."""


def error_code(code: int) -> ErrorCode:
    """Return the error in another broker's response; UNKNOWN_SERVER_ERROR for a code that only later releases have."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection. `connect` opens one, `request` sends a request, `close` closes it."""

    __slots__ = ("_buffer", "_closed", "_correlation_id", "_filled", "_response", "_transport", "client_id")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._response: asyncio.Future[memoryview] | None = None
        """The frame of the response to the request in flight; None without one."""
        self._closed = False

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str, timeout_s: float) -> BrokerConnection:
        """Open a connection. Raises BrokerConnectionError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(lambda: cls(client_id), host, port)
        except (OSError, TimeoutError) as error:
            reason = error or f"timed out after {timeout_s:g} s"
            raise BrokerConnectionError(f"cannot connect to the broker at {host}:{port}: {reason}") from error
        return connection

    async def request(self, request: Message, version: int, response: type[R], timeout_s: float) -> R:
        """Send one request and return its response, whose `records` are views that the next request overwrites.

        Raises BrokerConnectionError after closing the connection.
        """
        if self._closed or self._transport is None:
            raise BrokerConnectionError("the connection is closed")
        assert self._response is None, "one request at a time"
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        body = encode_request(request, version, correlation_id, self.client_id)
        self._response = future = asyncio.get_running_loop().create_future()
        self._transport.write(len(body).to_bytes(SIZE_BYTES) + body)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError:
            self.close()
            raise BrokerConnectionError(f"no response to {type(request).__name__} within {timeout_s:g} s") from None
        finally:
            self._response = None
        position = SIZE_BYTES
        try:
            received = int.from_bytes(frame[:SIZE_BYTES])
            if received != correlation_id:
                raise BrokerConnectionError(f"correlation id {correlation_id} expected, {received} received")
            if response_header_version(request.API_KEY, version) == 1:
                if frame[position]:
                    raise BrokerConnectionError(f"no tagged fields expected in the header, {frame[position]} received")
                position += 1
            return decoder(response, version)(frame, position)
        except (DecodeError, IndexError, BrokerConnectionError) as error:
            self.close()
            raise BrokerConnectionError(
                f"invalid response to {type(request).__name__} v{version}: {error or 'the header is cut off'}"
            ) from error

    @property
    def closed(self) -> bool:
        """Whether either side has closed the connection."""
        return self._closed

    def close(self) -> None:
        """Close the connection; a request in flight fails."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    # -- the event loop calls these -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection was closed{f': {error}' if error else ''}")

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled = filled = self._filled + size
        if filled < SIZE_BYTES:
            return None
        buffer = self._buffer
        frame_bytes = SIZE_BYTES + int.from_bytes(buffer[:SIZE_BYTES])
        if frame_bytes > len(buffer):
            if frame_bytes > _RESPONSE_BYTES_MAX:
                return self._fail(f"a response may have at most {_RESPONSE_BYTES_MAX} bytes, got {frame_bytes}")
            larger = memoryview(bytearray(frame_bytes))
            larger[:filled] = buffer[:filled]
            self._buffer = larger
        elif filled >= frame_bytes:
            if filled > frame_bytes or self._response is None:
                return self._fail("a response without a request was received")
            self._filled = 0
            if len(buffer) > _KEPT_BUFFER_BYTES_MAX:
                self._buffer = memoryview(bytearray(_BUFFER_BYTES))
            if not self._response.done():
                self._response.set_result(buffer[SIZE_BYTES:frame_bytes])
        return None

    def _fail(self, reason: str) -> None:
        if not self._closed:
            self.close()
        if self._response is not None and not self._response.done():
            self._response.set_exception(BrokerConnectionError(reason))
