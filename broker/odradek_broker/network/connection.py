"""One client connection: bytes in, requests handled in order, bytes out.

Owns framing, the state of the request in flight, interception, and what happens when a client misbehaves or goes away.
As in Kafka, the next request is looked at when the present one has been answered, so that answers come in order. What
arrives meanwhile stays in the connection's buffer; when that is full, or answers pile up, reading stops. Leaves what
requests mean to the handlers and how file slices reach the socket to `sender`.

A request's `records` are views into a receive buffer that is used again. They are valid until the handler returns; a
handler that goes on later (a coroutine, a `Deferred`) must not look at them any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from odradek_broker.authorizer import ANONYMOUS, Principal
from odradek_broker.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.interceptors import Delay, Disconnect, Drop, Fail, Verdict
from odradek_broker.network.header import HEAD, HEADER_MIN_BYTES, SIZE_BYTES, skip_tags
from odradek_broker.network.routes import Route
from odradek_broker.network.sender import ANSWER, ANSWER_WITH_TAGS, Sender, answer_head
from odradek_broker.report import Logger
from odradek_wire.apis import ApiKey
from odradek_wire.errors import DecodeError, ErrorCode

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Connection(asyncio.BufferedProtocol):
    """See the module. `busy` is true while a request waits for its answer or an answer for the socket."""

    __slots__ = (
        "_broker",
        "_buffer",
        "_buffered",
        "_client_id",
        "_client_id_bytes",
        "_consuming",
        "_deferred",
        "_draining",
        "_filled",
        "_interceptors",
        "_known_routes",
        "_paused",
        "_sender",
        "_starved",
        "_task",
        "active",
        "address",
        "busy",
        "client_software",
        "closing",
        "idle_since",
        "listener",
        "port",
        "principal",
        "server",
        "transport",
        "write_blocked",
    )

    def __init__(self, server: Server, listener: str) -> None:
        self.server = server
        self.listener = listener
        self._broker = server.broker
        self._interceptors = server.broker.interceptors
        self._known_routes = server.routes.known
        self.principal: Principal = ANONYMOUS
        self.client_software = UNKNOWN_SOFTWARE
        self.address = ""
        self.port = 0
        self.active = True
        self.idle_since = 0.0
        self.busy = False
        self.closing = False
        self.write_blocked = False
        self.transport: asyncio.Transport
        self._sender: Sender
        self._buffer: memoryview | None = None
        self._filled = 0
        self._buffered = 0
        self._paused = False
        self._starved = False
        self._consuming = False
        self._draining = False
        self._client_id: str | None = None
        self._client_id_bytes = b""
        self._deferred: Deferred[Any] | None = None
        self._task: asyncio.Task[Any] | None = None

    # -- the event loop calls these -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by class, but by its methods
        peer = transport.get_extra_info("peername")
        if peer:
            self.address, self.port = peer[0], peer[1]
        self._sender = Sender(self.transport, self.server.loop, self._sent, self.server.broker.log)
        self.server.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._sender.close()
        self._release_buffer()
        self._forget_buffered()
        if self._deferred is not None:
            self._deferred.cancel()
            self._deferred = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.server.disconnected(self)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer
        return self.server.buffers.shared_view if buffer is None else buffer[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self.active = True
        buffer = self._buffer
        if buffer is None:
            if self.busy or self.write_blocked:
                self._keep(self.server.buffers.shared_view, 0, size)
            else:
                self._consume(self.server.buffers.shared_view, size)
            return
        self._filled += size
        if self.busy or self.write_blocked:
            if self._filled == len(buffer):
                self._pause()
        else:
            self._consume(buffer, self._filled)

    def pause_writing(self) -> None:
        """The client does not read its answers: handle no other request, and count what is buffered for it."""
        self.write_blocked = True
        self._buffered = self.transport.get_write_buffer_size()
        self.server.buffers.budget.take_anyway(self._buffered)

    def resume_writing(self) -> None:
        self.write_blocked = False
        self._forget_buffered()
        self._go_on()

    def _forget_buffered(self) -> None:
        buffered, self._buffered = self._buffered, 0
        if buffered:
            self.server.buffers.budget.give_back(buffered)

    # -- requests ---------------------------------------------------------------------------------------------------

    def _consume(self, view: memoryview, end: int) -> None:
        """Handle every whole request in `view[:end]`; keep what is left."""
        start = 0
        self._consuming = True
        while end - start >= SIZE_BYTES + HEADER_MIN_BYTES:
            size, key_and_version, correlation_id, client_id_size = HEAD.unpack_from(view, start)
            stop = start + SIZE_BYTES + size
            if stop > end:
                break
            if size < HEADER_MIN_BYTES or size > self.server.request_max_bytes:
                self._refuse("request is shorter than its header or larger than socket.request.max.bytes", size=size)
                break
            frame = view[start + SIZE_BYTES : stop]
            start = stop
            self._dispatch(frame, key_and_version, correlation_id, client_id_size)
            if self.busy or self.write_blocked or self.closing:
                break
        self._consuming = False
        if start == end or self.closing:
            if self._buffer is not None:
                self._release_buffer()
        else:
            self._keep(view, start, end)

    def _dispatch(self, frame: memoryview, key_and_version: int, correlation_id: int, client_id_size: int) -> None:
        """One request, from its bytes to the bytes of its answer unless it has to wait."""
        route = self._known_routes.get(key_and_version)
        if route is None:
            route = self.server.routes.get(key_and_version)
            if route is None:
                return self._not_served(key_and_version, correlation_id)
        route.requests += 1
        broker = self._broker
        interceptors = self._interceptors
        if route.quick is not None and not interceptors.before_handle and not interceptors.before_write:
            try:
                quick_body = self._quick_body(route, frame, client_id_size)
            except Exception as error:
                # It may have taken effect: the general way must not do it again.
                self._log_of(None).error("handler failed; closing the connection", api=route.key.name, exc_info=error)
                return self.close()
            if quick_body is not None:
                head = answer_head(correlation_id, route.response_has_tags, len(quick_body))
                return self.transport.write(head + quick_body)
        position = HEADER_MIN_BYTES
        if client_id_size > 0:
            position += client_id_size
            raw = bytes(frame[HEADER_MIN_BYTES:position])
            if raw != self._client_id_bytes:
                self._client_id_bytes = raw
                self._client_id = raw.decode("utf-8", "replace")
        elif client_id_size == 0:
            self._client_id, self._client_id_bytes = "", b""
        else:
            self._client_id, self._client_id_bytes = None, b""
        ctx = Context(broker, self, route.key, route.version, correlation_id, self._client_id)
        try:
            if route.flexible:
                if frame[position]:
                    position = skip_tags(frame, position)
                else:
                    position += 1
            request = _decoded(route, frame, position)
        except (DecodeError, IndexError, ValueError) as error:
            return self._refuse("request cannot be read", ctx, error=str(error))
        if interceptors.before_handle:
            verdict = interceptors.on_request(ctx, request)
            if verdict is not None:
                if isinstance(verdict, Delay):
                    request = _decoded(route, bytearray(frame), position)  # its views must outlive this callback
                return self._intercept(ctx, route, request, verdict)
        # The straight line of the hot path; everything that is not usual takes the longer way below.
        try:
            response = route.handle(ctx, request)
        except Exception as error:
            return self._failed(ctx, route, request, error)
        if response.__class__ is not route.response_class:
            return self._not_there_yet(ctx, route, request, response)
        if interceptors.before_write or route.sends_files or not broker.quotas.unlimited or self.closing:
            return self.respond(ctx, route, request, response)
        try:
            body = b"".join(cast("list[bytes]", route.encode(response)))
        except Exception as error:
            return self._not_encoded(ctx, error)
        if route.response_has_tags:
            self.transport.write(ANSWER_WITH_TAGS.pack(len(body) + 5, correlation_id, 0) + body)
        else:
            self.transport.write(ANSWER.pack(len(body) + 4, correlation_id) + body)
        return None

    def _quick_body(self, route: Route, frame: memoryview, client_id_size: int) -> bytes | None:
        """The answer's body if this is the usual request of its API and nothing stands between it and the handler."""
        position = HEADER_MIN_BYTES + client_id_size if client_id_size > 0 else HEADER_MIN_BYTES
        if route.flexible:
            if position >= len(frame) or frame[position]:
                return None  # tagged fields in the header
            position += 1
        if not self._broker.quotas.unlimited:
            return None
        return route.quick(self._broker, frame, position)  # type: ignore[misc]  # asked before

    def _not_served(self, key_and_version: int, correlation_id: int) -> None:
        """An API or a version that is not served: Kafka closes the connection, except for ApiVersions (KIP-511), which
        is answered in version 0 with the versions of ApiVersions itself."""
        if key_and_version >> 16 == ApiKey.API_VERSIONS:
            answer = self.server.routes.downgrade
            self.transport.write(answer_head(correlation_id, False, len(answer)) + answer)
        else:
            self._refuse(
                "API or version is not served", api_key=key_and_version >> 16, version=key_and_version & 0xFFFF
            )

    def _handle(self, ctx: Context, route: Route, request: Any) -> None:
        try:
            response = route.handle(ctx, request)
        except Exception as error:
            return self._failed(ctx, route, request, error)
        if response.__class__ is route.response_class:
            return self.respond(ctx, route, request, response)
        return self._not_there_yet(ctx, route, request, response)

    def _not_there_yet(self, ctx: Context, route: Route, request: Any, response: Any) -> None:
        """The handler answered with something to wait for, or with nothing at all."""
        if response is None:  # acks=0: the client expects no answer
            return self._done() if self.busy else None
        self.busy = True
        if isinstance(response, Deferred):
            self._deferred = response
            response.when_done(lambda deferred: self._deferred_done(ctx, route, request, deferred))
            return None
        self._task = task = self.server.loop.create_task(cast("Coroutine[Any, Any, Any]", response))
        task.add_done_callback(lambda done: self._task_done(ctx, route, request, done))
        return None

    def _deferred_done(self, ctx: Context, route: Route, request: Any, deferred: Deferred[Any]) -> None:
        self._deferred = None
        if deferred.error is not None:
            self._failed(ctx, route, request, deferred.error)
        else:
            self.respond(ctx, route, request, deferred.value)

    def _task_done(self, ctx: Context, route: Route, request: Any, task: asyncio.Task[Any]) -> None:
        self._task = None
        if task.cancelled():
            # The client went away; or a handler gave up on its own, and no other request may wait behind it for ever.
            self.close()
            return
        error = task.exception()
        if error is not None:
            self._failed(ctx, route, request, error)
        else:
            self.respond(ctx, route, request, task.result())

    def _failed(self, ctx: Context, route: Route, request: Any, error: BaseException) -> None:
        """An exception that no handler foresaw: UNKNOWN_SERVER_ERROR for the client, a traceback for us."""
        self._log_of(ctx).error("handler failed", exc_info=error)
        response = route.failure(ctx, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if response is None:
            self.close()
        else:
            self.respond(ctx, route, request, response)

    # -- answers ----------------------------------------------------------------------------------------------------

    def respond(self, ctx: Context, route: Route, request: Any, response: Any) -> None:
        """Throttle, intercept, encode, write; then look at the next request."""
        if self.closing:
            return None
        if response is None:
            return self._done()
        broker = self.server.broker
        if broker.interceptors.before_write:
            verdict = broker.interceptors.on_response(ctx, request, response)
            if verdict is not None:
                return self._intercept_answer(ctx, route, request, response, verdict)
        self.write(ctx, route, response)
        return None

    def write(self, ctx: Context, route: Route, response: Any) -> None:
        quotas = self.server.broker.quotas
        muted_ms = 0 if quotas.unlimited else quotas.throttle_ms(ctx, self._filled)
        if muted_ms and route.throttled:
            response.throttle_time_ms = muted_ms
        try:
            parts = route.encode(response)
        except Exception as error:
            return self._not_encoded(ctx, error)
        tagged = route.response_has_tags
        if route.sends_files:
            try:
                if not self._sender.send(ctx.correlation_id, tagged, parts):
                    self.busy = True
                    return None
            except Exception as error:  # the disk: whoever woke this fetch has others to wake
                return self._not_sent(ctx, error)
        else:
            body = b"".join(cast("list[bytes]", parts))
            self.transport.write(answer_head(ctx.correlation_id, tagged, len(body)) + body)
        if muted_ms:
            # KIP-219: the answer goes out at once, the connection is not read for as long as it tells the client.
            self.busy = True
            self.server.broker.timers.call_later(muted_ms, self._done)
        elif self.busy:
            self._done()
        return None

    def _not_encoded(self, ctx: Context, error: Exception) -> None:
        self._log_of(ctx).error("response cannot be encoded; closing the connection", exc_info=error)
        self.close()

    def _not_sent(self, ctx: Context, error: Exception) -> None:
        self._log_of(ctx).error("response cannot be sent; closing the connection", exc_info=error)
        self.abort()

    def _sent(self) -> None:
        """The sender got rid of an answer that did not fit into the socket at once."""
        if not self.closing:
            self._done()

    def _done(self) -> None:
        self.busy = False
        if self._draining:
            self.close()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Whatever held the connection is over: handle what has arrived meanwhile, read again."""
        if self.busy or self.write_blocked or self.closing or self._consuming or self._starved:
            return
        buffer = self._buffer
        if buffer is not None and self._filled:
            self._consume(buffer, self._filled)
        if self._paused and not (self.busy or self.write_blocked or self.closing or self._starved):
            self._paused = False
            self.transport.resume_reading()

    # -- faults -----------------------------------------------------------------------------------------------------

    def _intercept(self, ctx: Context, route: Route, request: Any, verdict: Verdict) -> None:
        match verdict:
            case Delay():
                self.busy = True
                self.server.broker.timers.call_later(
                    verdict.delay_ms, lambda: self._handle_delayed(ctx, route, request)
                )
            case Fail():
                response = route.failure(ctx, request, verdict.error)
                if response is None:
                    self.close()
                else:
                    self.respond(ctx, route, request, response)
            case Drop():
                pass
            case Disconnect():
                self.close()

    def _handle_delayed(self, ctx: Context, route: Route, request: Any) -> None:
        if not self.closing:
            self._handle(ctx, route, request)

    def _intercept_answer(self, ctx: Context, route: Route, request: Any, response: Any, verdict: Verdict) -> None:
        match verdict:
            case Delay():
                self.busy = True
                self.server.broker.timers.call_later(
                    verdict.delay_ms, lambda: None if self.closing else self.write(ctx, route, response)
                )
            case Fail():
                failure = route.failure(ctx, request, verdict.error)
                if failure is None:
                    self.close()
                else:
                    self.write(ctx, route, failure)
            case Drop():
                if self.busy:
                    self._done()
            case Disconnect():
                self.close()

    def _refuse(self, why: str, ctx: Context | None = None, **facts: Any) -> None:
        """The client sent what cannot be a request: close its connection, and say so once."""
        self._log_of(ctx).warning(why + "; closing the connection", **facts)
        self.close()

    def _log_of(self, ctx: Context | None) -> Logger:
        facts: dict[str, Any] = {"client": f"{self.address}:{self.port}", "client_id": self._client_id}
        if ctx is not None:
            facts["api"] = f"{ApiKey(ctx.api_key).name} v{ctx.api_version}"
        return self.server.broker.log.bind(**facts)

    def close(self) -> None:
        """Close after what has been written is out. Idempotent."""
        if not self.closing:
            self.closing = True
            self.transport.close()

    def abort(self) -> None:
        """Close at once, as a crash would."""
        self.closing = True
        self.transport.abort()

    def drain(self) -> None:
        """Shutdown: let the request in flight be answered, handle no other, then close."""
        self._draining = True
        if not self.busy:
            self.close()

    def hold(self) -> None:
        """`max.connections` is reached: be connected, but handle nothing until `release`. Loops differ in whether
        reading can be stopped this early, so that what arrives all the same is kept."""
        self.busy = True
        self._pause()

    def release(self) -> None:
        self.busy = False
        self._go_on()

    # -- buffers ----------------------------------------------------------------------------------------------------

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Keep `view[start:end]`, which is not a whole request or must wait, in a buffer of our own that fits the
        rest."""
        left = end - start
        needed = left
        if left >= SIZE_BYTES:
            size = int.from_bytes(view[start : start + SIZE_BYTES], "big", signed=True)
            if size < HEADER_MIN_BYTES or size > self.server.request_max_bytes:
                return self._refuse(
                    "request is shorter than its header or larger than socket.request.max.bytes", size=size
                )
            needed = max(left, SIZE_BYTES + size)
        buffer = self._buffer
        if buffer is not None and len(buffer) >= needed:
            if start:
                buffer[0:left] = bytes(view[start:end]) if buffer is view else view[start:end]
            elif buffer is not view:
                buffer[0:left] = view[0:end]
            self._filled = left
        else:
            larger = self.server.buffers.take(needed)
            if larger is None:
                return self._wait_for_memory(bytes(view[start:end]))
            larger[0:left] = view[start:end]
            self._release_buffer()
            self._buffer = larger
            self._filled = left
        if self._filled == len(self._buffer or b""):
            self._pause()
        return None

    def _wait_for_memory(self, kept: bytes) -> None:
        """The broker's memory budget is exhausted: read no further until others have given back what they hold."""
        self._release_buffer()
        self._pause()
        self._starved = True  # not `busy`: a request in flight may end meanwhile, and what is kept comes after it
        self.server.memory_exhausted(self)

        def retry() -> None:
            if self.closing:
                return
            self._starved = False
            view = memoryview(kept)
            self._keep(view, 0, len(view))
            self._go_on()

        self.server.buffers.budget.when_available(retry)

    def _release_buffer(self) -> None:
        buffer = self._buffer
        if buffer is not None:
            self._buffer = None
            self._filled = 0
            self.server.buffers.give_back(buffer)

    def _pause(self) -> None:
        if not self._paused and not self.closing:
            self._paused = True
            self.transport.pause_reading()

    def idle_for(self, now: float) -> float:
        """Seconds without traffic, told to the server's sweep; a connection whose request waits is not idle."""
        if self.active or self.busy or self._starved:
            self.active = False
            self.idle_since = now
        return now - self.idle_since


def _decoded(route: Route, frame: memoryview | bytearray, position: int) -> Any:
    try:
        return route.decode(frame, position)
    except DecodeError:
        return route.decode_before_trailing_bytes(frame, position)
