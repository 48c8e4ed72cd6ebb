"""Framing: the receiver of one connection splits the received bytes into requests, and dispatches one at a time.

Owns the receive buffer, and back-pressure in both directions. As in Kafka, a connection handles its next request after
the response to the previous one, so that responses come in order. Bytes that arrive meanwhile stay in the buffer; the
receiver stops reading when the buffer is full, when the broker's memory budget is exhausted, or when the client does
not read its responses. Leaves the contents of requests to `connection`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from odradek_broker.memory import POOLED_BUFFER_SIZE, MemoryExhausted, ReceiveBuffers
from odradek_broker.network.header import REQUEST_HEAD
from odradek_wire.frames import HEADER_MIN_BYTES, SIZE_BYTES

if TYPE_CHECKING:
    from odradek_broker.network.connection import Connection

GREETING_BYTES = 16
"""The number of first bytes by which `greetings` recognizes another protocol."""


class Receiver(asyncio.BufferedProtocol):
    """The asyncio protocol of one connection. `write_blocked` is true while the client does not read its responses,
    `active` if bytes have arrived since the last sweep for idle connections."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_connection",
        "_consuming",
        "_filled",
        "_paused",
        "_request_max_bytes",
        "_transport",
        "_unsent_bytes",
        "active",
        "idle_since",
        "waits_for_memory",
        "write_blocked",
    )

    def __init__(self, connection: Connection, buffers: ReceiveBuffers, request_max_bytes: int) -> None:
        self._connection = connection
        self._buffers = buffers
        self._request_max_bytes = request_max_bytes
        self._transport: asyncio.Transport
        self._buffer: memoryview | None = None
        self._filled = 0
        self._unsent_bytes = 0
        self._consuming = False
        self._paused = False
        self.waits_for_memory = False
        self.write_blocked = False
        self.active = True
        self.idle_since = 0.0

    # -- the event loop calls these -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass, but has the methods
        self._connection.opened(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.closing = True  # first: returning memory calls waiting receivers, perhaps this one
        self._buffers.budget.forget(self._resume_blocked)
        self._release_buffer()
        self._forget_unsent_bytes()
        self._connection.lost()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer
        return self._buffers.shared_view if buffer is None else buffer[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self.active = True
        buffer = self._buffer
        if buffer is None:
            if self._connection.busy or self.write_blocked:
                self._keep(self._buffers.shared_view, 0, size)
            else:
                self._consume(self._buffers.shared_view, size)
            return
        self._filled += size
        if self._connection.busy or self.write_blocked:
            if self._filled == len(buffer):
                self.pause()
        else:
            self._consume(buffer, self._filled)

    def pause_writing(self) -> None:
        """Handle no other request until the client reads its responses, and count the buffered bytes as used memory."""
        self.write_blocked = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._buffers.budget.take_unchecked(self._unsent_bytes)

    def resume_writing(self) -> None:
        self.write_blocked = False
        self._forget_unsent_bytes()
        self.resume()

    def _forget_unsent_bytes(self) -> None:
        unsent, self._unsent_bytes = self._unsent_bytes, 0
        if unsent:
            self._buffers.budget.give_back(unsent)

    # -- the connection calls these -----------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes that the receive buffer has taken from the memory budget."""
        return 0 if self._buffer is None else len(self._buffer)

    def pause(self) -> None:
        """Stop reading until `resume` has handled every received request."""
        if not self._paused and not self._connection.closing:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Handle the requests in the buffer, then read again, unless the connection must still wait."""
        if self._consuming or not self._may_dispatch():
            return
        buffer = self._buffer
        if buffer is not None and self._filled:
            self._consume(buffer, self._filled)
        if self._paused and self._may_dispatch():
            self._paused = False
            self._transport.resume_reading()

    def hold_buffer(self) -> int | None:
        """Leave the receive buffer to the request that is being dispatched, as `Connection.hold_request`: its bytes
        stay valid, and those that follow it get another buffer."""
        buffer = self._buffer
        if not self._consuming:
            return 0  # a request that is handled later has its bytes in a buffer of its own
        if buffer is None or len(buffer) <= POOLED_BUFFER_SIZE:
            return None
        self._buffer = None
        self._filled = 0
        return len(buffer)

    def idle_for(self, now: float) -> float:
        """Return the seconds since a call of this method last found the connection in use: bytes had arrived since the
        call before, or a request waited."""
        if self.active or self._connection.busy or self.waits_for_memory:
            self.active = False
            self.idle_since = now
        return now - self.idle_since

    def _may_dispatch(self) -> bool:
        """Return whether the connection may handle another request."""
        connection = self._connection
        return not (connection.busy or self.write_blocked or connection.closing or self.waits_for_memory)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _consume(self, view: memoryview, end: int) -> None:
        """Dispatch every whole request in `view[:end]`; keep the bytes that are left."""
        connection = self._connection
        start = 0
        self._consuming = True
        try:
            while end - start >= SIZE_BYTES + HEADER_MIN_BYTES:
                size, key_and_version, correlation_id, client_id_size = REQUEST_HEAD.unpack_from(view, start)
                stop = start + SIZE_BYTES + size
                if stop > end:
                    break
                if size < HEADER_MIN_BYTES or size > self._request_max_bytes:
                    connection.refuse_size(size, bytes(view[start:end][:GREETING_BYTES]))
                    break
                connection.dispatch(view[start + SIZE_BYTES : stop], key_and_version, correlation_id, client_id_size)
                start = stop
                if connection.busy or self.write_blocked or connection.closing:
                    break
        except MemoryExhausted as exhausted:
            self._consuming = False
            return self._wait_for_conversion_memory(view, start, end, exhausted.size)
        self._consuming = False
        if start == end or connection.closing:
            if self._buffer is not None:
                self._release_buffer()
        else:
            self._keep(view, start, end)
        return None

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Keep `view[start:end]`, an incomplete request or requests that must wait, in a buffer that is large enough
        for the whole first request."""
        left = end - start
        needed = left
        if left >= SIZE_BYTES:
            size = int.from_bytes(view[start : start + SIZE_BYTES], "big", signed=True)
            if size < HEADER_MIN_BYTES or size > self._request_max_bytes:
                return self._connection.refuse_size(size, bytes(view[start:end][:GREETING_BYTES]))
            needed = max(left, SIZE_BYTES + size)
        buffer = self._buffer
        if buffer is not None and len(buffer) >= needed:
            if start:
                buffer[0:left] = bytes(view[start:end]) if buffer is view else view[start:end]
            elif buffer is not view:
                buffer[0:left] = view[0:end]
            self._filled = left
        else:
            larger = self._buffers.take(needed)
            if larger is None:
                return self._wait_for_buffer(bytes(view[start:end]))
            larger[0:left] = view[start:end]
            self._release_buffer()
            self._buffer = larger
            self._filled = left
        if self._filled == len(self._buffer or b""):
            self.pause()
        return None

    def _release_buffer(self) -> None:
        buffer = self._buffer
        if buffer is not None:
            self._buffer = None
            self._filled = 0
            self._buffers.give_back(buffer)

    # -- waiting for memory -------------------------------------------------------------------------------------------

    def _wait_for_buffer(self, kept: bytes) -> None:
        """Stop reading until the memory budget has a buffer for the request that begins with these bytes."""
        if self._buffer is not None:
            # The memory that this connection gives back may be enough.
            self._release_buffer()
            return self._keep(memoryview(kept), 0, len(kept))
        self._block(memoryview(kept))

        def retry() -> None:
            if self._connection.closing:
                return
            self.waits_for_memory = False
            view = memoryview(kept)
            self._keep(view, 0, len(view))
            self.resume()

        self._buffers.budget.when_available(retry)
        return None

    def _wait_for_conversion_memory(self, view: memoryview, start: int, end: int, size: int) -> None:
        """Keep the request at `start`, and dispatch it again when the budget has `size` more bytes for its handler."""
        if self._buffer is None:
            # `_keep` would wait for a buffer, and no connection gets one while a request is blocked.
            self._buffer = self._buffers.copy(view[start:end])
            self._filled = end - start
        else:
            self._keep(view, start, end)
        self._block(self._buffer)
        self._buffers.budget.block_until_room(size, self.held_bytes, self._resume_blocked)

    def _resume_blocked(self) -> None:
        self.waits_for_memory = False
        self.resume()

    def _block(self, arrived: memoryview) -> None:
        self.pause()
        self.waits_for_memory = True  # `busy` would not do: the end of an earlier request resets it
        self._connection.warn_memory_exhausted(arrived)
