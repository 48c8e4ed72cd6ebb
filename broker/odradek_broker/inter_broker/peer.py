"""A connection to another broker: requests out, answers in, one at a time.

Owns framing and the buffer that answers arrive in, which is used again. Leaves which requests, when to connect anew and
how long to wait after a failure to whoever asks.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from odradek_wire.apis import response_header_version
from odradek_wire.codec import decoder
from odradek_wire.errors import DecodeError
from odradek_wire.frames import encode_request
from odradek_wire.message import Message

R = TypeVar("R", bound=Message)

SIZE_BYTES = 4
_BUFFER_BYTES = 64 << 10
_KEPT_BYTES = 1 << 20
"""A larger buffer is given back after its answer."""
_ANSWER_BYTES_MAX = 1 << 30


class PeerError(ConnectionError):
    """The other broker cannot be reached, went away, or answered something that is no answer."""


class Peer(asyncio.BufferedProtocol):
    """Make one with `connect`; ask; `close` it."""

    __slots__ = ("_answer", "_buffer", "_correlation_id", "_filled", "_lost", "_name", "_transport")

    def __init__(self, name: str) -> None:
        """`name` is the client id under which the other side sees us."""
        self._name = name
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._answer: asyncio.Future[memoryview] | None = None
        self._lost = False

    @classmethod
    async def connect(cls, host: str, port: int, name: str, timeout_s: float) -> Peer:
        """Raises PeerError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, peer = await loop.create_connection(lambda: cls(name), host, port)
        except (OSError, TimeoutError) as error:
            raise PeerError(f"no broker answers at {host}:{port}: {error or 'time is over'}") from error
        return peer

    async def ask(self, request: Message, version: int, answer: type[R], timeout_s: float) -> R:
        """The answer to one request. Its `records` are views that are valid until the next request.

        Raises PeerError; the connection is of no use then.
        """
        if self._lost or self._transport is None:
            raise PeerError("the connection is closed")
        assert self._answer is None, "one request at a time"
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        body = encode_request(request, version, correlation_id, self._name)
        self._answer = future = asyncio.get_running_loop().create_future()
        self._transport.write(len(body).to_bytes(SIZE_BYTES) + body)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError:
            self.close()
            raise PeerError(f"no answer to {type(request).__name__} within {timeout_s:g} s") from None
        finally:
            self._answer = None
        position = SIZE_BYTES
        try:
            if int.from_bytes(frame[:SIZE_BYTES]) != correlation_id:
                raise PeerError("an answer to another request")
            if response_header_version(request.API_KEY, version) == 1:
                if frame[position]:
                    raise PeerError("tagged fields in a response header")
                position += 1
            return decoder(answer, version)(frame, position)
        except (DecodeError, IndexError, PeerError) as error:
            self.close()
            raise PeerError(f"not an answer to {type(request).__name__} v{version}: {error}") from error

    @property
    def closed(self) -> bool:
        """Whether either side has closed the connection."""
        return self._lost

    def close(self) -> None:
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    # -- the event loop calls these -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the other broker closed the connection{f': {error}' if error else ''}")

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled = filled = self._filled + size
        if filled < SIZE_BYTES:
            return None
        buffer = self._buffer
        whole = SIZE_BYTES + int.from_bytes(buffer[:SIZE_BYTES])
        if whole > len(buffer):
            if whole > _ANSWER_BYTES_MAX:
                return self._fail(f"an answer of {whole} bytes")
            larger = memoryview(bytearray(whole))
            larger[:filled] = buffer[:filled]
            self._buffer = larger
        elif filled >= whole:
            if filled > whole or self._answer is None:
                return self._fail("an answer that nobody asked for")
            self._filled = 0
            if len(buffer) > _KEPT_BYTES:
                self._buffer = memoryview(bytearray(_BUFFER_BYTES))
            if not self._answer.done():
                self._answer.set_result(buffer[SIZE_BYTES:whole])
        return None

    def _fail(self, why: str) -> None:
        if not self._lost:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(PeerError(why))
