"""One client connection: its principal, and the path of its requests from received bytes to written responses.

Owns the usual path of a request through decoder, handler and encoder, the gate that authentication opens, the reaction
to a client that violates the protocol, and the life of the connection. Leaves receiving to `receiver`, requests that
wait or fail to `exchange`, sending slices of log files to `sender`, and the meaning of requests to their handlers.

The `records` of a request are views into a receive buffer that the next request overwrites. They are valid until the
handler returns; a handler that continues later (a coroutine, a `Deferred`) must not read them after that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS
from odradek_broker.logger import Logger
from odradek_broker.memory import ROOM_PER_CONVERTED_BYTE, MemoryExhausted
from odradek_broker.network import faults
from odradek_broker.network.exchange import Exchange
from odradek_broker.network.greetings import recognize
from odradek_broker.network.header import REQUEST_HEAD, client_and_api, skip_tagged_fields
from odradek_broker.network.interceptors import Delay
from odradek_broker.network.long_requests import LongRequest
from odradek_broker.network.receiver import Receiver
from odradek_broker.network.routes import Route
from odradek_broker.network.sender import RESPONSE_HEAD, RESPONSE_HEAD_WITH_TAGS, Sender, response_head
from odradek_broker.security.authenticator import Authenticator, ChannelBuilder
from odradek_controller.principal import ANONYMOUS, Principal
from odradek_wire.apis import ApiKey
from odradek_wire.codec import Part
from odradek_wire.errors import DecodeError, TooManyElementsError
from odradek_wire.frames import HEADER_MIN_BYTES, SIZE_BYTES

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

NO_ROUTES: dict[int, Route] = {}
"""The open routes of a connection before its authentication has completed; stays empty."""
UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Connection:
    """A connection. `busy` is true while a request has no response yet, or its response waits for the socket."""

    __slots__ = (
        "_broker",
        "_channel_builder",
        "_client_id",
        "_client_id_bytes",
        "_draining",
        "_long",
        "_muted_ms",
        "_open_routes",
        "_sender",
        "_waiting",
        "address",
        "authenticator",
        "busy",
        "client_software",
        "closing",
        "interceptors",
        "listener",
        "memory",
        "port",
        "principal",
        "receiver",
        "routes",
        "server",
        "transport",
    )

    def __init__(self, server: Server, listener: str, channel_builder: ChannelBuilder) -> None:
        self.server = server
        self.listener = listener
        self._channel_builder = channel_builder
        self._broker = server.broker
        self.interceptors = server.broker.interceptors
        self.routes = server.routes_on(listener)
        self._open_routes = NO_ROUTES
        self.memory = server.buffers.budget
        self.receiver = Receiver(self, server.buffers, server.request_max_bytes)
        self.principal: Principal = ANONYMOUS
        self.authenticator: Authenticator
        self.client_software = UNKNOWN_SOFTWARE
        self.address = ""
        self.port = 0
        self.busy = False
        self.closing = False
        self.transport: asyncio.Transport
        self._sender: Sender
        self._draining = False
        self._muted_ms = 0
        self._client_id: str | None = None
        self._client_id_bytes = b""
        self._waiting: Exchange | None = None
        self._long: LongRequest | None = None

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def opened(self, transport: asyncio.Transport) -> None:
        """Begin to serve the client, over the transport that the event loop has given to the receiver."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.address, self.port = peer[0], peer[1]
        self._sender = Sender(transport, self.server.loop, self._sent, self._truncated)
        self.authenticator = self._channel_builder.authenticator(transport)
        self.check_authentication()
        self.server.connected(self)

    def lost(self) -> None:
        """End after the transport has closed. A request that waits is cancelled; its effects stay."""
        self._sender.close()
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._long is not None:
            self._long.end()
            self._long = None
        self.server.disconnected(self)

    def close(self) -> None:
        """Close after the transport has sent its buffer. Idempotent."""
        if not self.closing:
            self.closing = True
            self.transport.close()

    def abort(self) -> None:
        """Close without sending the transport's buffer, as a crash does."""
        self.closing = True
        self.transport.abort()

    def refuse(self, event: str, ctx: Context | None = None, **facts: Any) -> None:
        """Close the connection because of something that the client sent, and log the event as a warning."""
        self.warn(event, ctx, **facts)
        self.close()

    def refuse_size(self, size: int, first: bytes) -> None:
        """Close the connection because no request can have this size. `first` has the first bytes of the request."""
        greeting = recognize(first)
        if greeting is None:
            self.refuse(
                "request size is out of range; closing the connection",
                size=size,
                size_min=HEADER_MIN_BYTES,
                size_max=self.server.request_max_bytes,
                setting="socket.request.max.bytes",
                listener=self.listener,
            )
        else:
            self.refuse(greeting.event, hint=greeting.hint, listener=self.listener)

    def warn(self, event: str, ctx: Context | None = None, **facts: Any) -> None:
        """Log a warning that this client caused, or count it if the same event was logged within the last second."""
        self.server.repeated_warnings.warning(self.log_of(ctx), event, facts)

    def drain(self) -> None:
        """Close after the response to the request in progress, as at a shutdown; handle no other request."""
        self._draining = True
        if not self.busy:
            self.close()

    def hold(self) -> None:
        """Handle no request until `release`, because `max.connections` is reached. Not every event loop can stop
        reading this early; the receiver keeps the bytes that arrive."""
        self.busy = True
        self.receiver.pause()

    def release(self) -> None:
        """End `hold`: handle requests."""
        self.busy = False
        self.receiver.resume()

    def log_of(self, ctx: Context | None) -> Logger:
        """Return a logger with the client's address and id, and with the API of a request. Without a request the client
        id is that of the connection's last request on the general path."""
        facts: dict[str, Any] = {"client": f"{self.address}:{self.port}", "client_id": self._client_id}
        if ctx is not None:
            facts["client_id"] = ctx.client_id
            facts["api"] = f"{ApiKey(ctx.api_key).name} v{ctx.api_version}"
        return self._broker.log.bind(**facts)

    # -- the gate before dispatch -------------------------------------------------------------------------------------

    def check_authentication(self) -> bool:
        """Take over the authenticator's principal, and open the gate if there is one. Return whether it is open.

        The gate costs the hot path nothing: `dispatch` looks routes up in `_open_routes`, which is empty until
        authentication has completed, and calls `_route` only if there is none."""
        principal = self.authenticator.principal
        if principal is None:
            self._open_routes = NO_ROUTES
            return False
        self.principal = principal
        self._open_routes = self.routes.compiled
        return True

    def _route(self, key_and_version: int) -> Route | None:
        """Return the route of a request; None if the listener or the gate does not serve it."""
        if self._open_routes is NO_ROUTES and not self._may_be_routed(key_and_version):
            return None
        return self.routes.get(key_and_version)

    def _may_be_routed(self, key_and_version: int) -> bool:
        return self.check_authentication() or self.authenticator.allows_before_completion(key_and_version >> 16)

    # -- a request ----------------------------------------------------------------------------------------------------

    def dispatch(self, frame: memoryview, key_and_version: int, correlation_id: int, client_id_size: int) -> None:
        """Serve one request, and write its response unless it has to wait. Raises MemoryExhausted if there is no memory
        for the request, which has had no effect: the receiver dispatches it again later."""
        route = self._open_routes.get(key_and_version)
        if route is None:
            route = self._route(key_and_version)
            if route is None:
                return self._not_served(frame, key_and_version, correlation_id, client_id_size)
        route.requests += 1
        interceptors = self.interceptors
        body = None
        if route.fast_path is not None and not interceptors.before_handle and not interceptors.before_write:
            try:
                body = self._fast_path_body(route, frame, client_id_size)
            except Exception as error:
                # The records may be in the log: the general path must not append them again.
                self.log_of(None).error(
                    "handler failed; closing the connection",
                    **client_and_api(frame, key_and_version, client_id_size),
                    exc_info=error,
                )
                return self.close()
        if body is None:
            body = self._general_path_body(route, frame, correlation_id, client_id_size)
            if body is None:
                return None
        if route.response_has_tags:
            self.transport.write(RESPONSE_HEAD_WITH_TAGS.pack(len(body) + 5, correlation_id, 0) + body)
        else:
            self.transport.write(RESPONSE_HEAD.pack(len(body) + 4, correlation_id) + body)
        return None

    def _fast_path_body(self, route: Route, frame: memoryview, client_id_size: int) -> bytes | None:
        """Return the body of the response by the API's fast path; None if the request needs the general path."""
        position = HEADER_MIN_BYTES + client_id_size if client_id_size > 0 else HEADER_MIN_BYTES
        if route.flexible:
            if position >= len(frame) or frame[position]:
                return None  # tagged fields in the header
            position += 1
        broker = self._broker
        if not broker.quotas.unlimited:
            return None
        memory = self.memory
        if memory.used and memory.used + ROOM_PER_CONVERTED_BYTE * len(frame) > memory.limit:
            return None  # the general path checks the budget
        return route.fast_path(broker, self, frame, position)  # type: ignore[misc]  # the caller checks that it is not None

    def _general_path_body(
        self, route: Route, frame: memoryview, correlation_id: int, client_id_size: int
    ) -> bytes | None:
        """Decode, handle and encode on the general path. Return the body of the response; None if there is none, or if
        it is written elsewhere or later."""
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
        broker = self._broker
        is_long = False
        ctx = Context(broker, self, route.key, route.version, correlation_id, self._client_id)
        try:
            if route.flexible:
                if frame[position]:
                    position = skip_tagged_fields(frame, position)
                else:
                    position += 1
            if len(frame) <= route.unlimited_decode_bytes_max:
                request = _decoded(route, frame, position)
            else:
                request, elements = route.decode_limited(frame, position, ELEMENTS)
                is_long = elements > route.slice_elements
        except TooManyElementsError:
            self._long = LongRequest(self, ctx, route, frame, position)
            return None
        except (DecodeError, IndexError, ValueError) as error:
            self.refuse("request cannot be read; closing the connection", ctx, error=str(error))
            return None
        interceptors = self.interceptors
        if interceptors.before_handle:
            verdict = interceptors.on_request(ctx, request)
            if verdict is not None:
                if isinstance(verdict, Delay):
                    request = _decoded(route, bytearray(frame), position)  # its records must stay valid
                faults.apply_before_handler(Exchange(self, ctx, route, request, len(frame), is_long=is_long), verdict)
                return None
        if is_long:
            Exchange(self, ctx, route, request, len(frame), is_long=True).handle()
            return None
        try:
            response = route.handle(ctx, request)
        except MemoryExhausted:
            route.requests -= 1
            raise
        except Exception as error:
            Exchange(self, ctx, route, request, len(frame)).fail(error)
            return None
        if response is None and broker.quotas.unlimited:
            return None
        if (
            response.__class__ is not route.response_class
            or interceptors.before_write
            or not broker.quotas.unlimited
            or self.closing
        ):
            Exchange(self, ctx, route, request, len(frame)).complete_with(response)
            return None
        if route.sends_files:
            self.send(ctx, route, response)
            return None
        try:
            return b"".join(cast("list[bytes]", route.encode(response)))
        except Exception as error:
            self.not_encoded(ctx, error)
            return None

    def _not_served(self, frame: memoryview, key_and_version: int, correlation_id: int, client_id_size: int) -> None:
        """Close the connection, because it does not serve the request's API or version. As in Kafka, ApiVersions in an
        unknown version gets a response instead: in version 0, with the versions of ApiVersions itself (KIP-511)."""
        if key_and_version >> 16 == ApiKey.API_VERSIONS:
            body = self.routes.unsupported_version_body
            self.transport.write(response_head(correlation_id, False, len(body)) + body)
        elif not self._may_be_routed(key_and_version):
            self.refuse(
                "request before authentication has completed; closing the connection",
                **client_and_api(frame, key_and_version, client_id_size),
            )
        else:
            self.refuse(
                "API or version is not served; closing the connection",
                **client_and_api(frame, key_and_version, client_id_size),
            )

    def has_room(self, size: int) -> bool:
        """Return whether a request of this connection may use `size` bytes of memory beside its receive buffer."""
        return self.memory.has_room(size, self.receiver.held_bytes)

    def require_room(self, size: int) -> None:
        """Raise MemoryExhausted if the memory budget has no room for `size` bytes. A handler calls this before it has
        any effect, and does not catch the exception. No-op after `dispatch` has returned, because the receiver can no
        longer dispatch the request again."""
        if not self.busy and not self.has_room(size):
            raise MemoryExhausted(size)

    def hold_request(self) -> int | None:
        """As `ClientConnection.hold_request`."""
        return self.receiver.hold_buffer()

    def warn_memory_exhausted(self, arrived: memoryview) -> None:
        """Log that the receiver waits for memory. `arrived` are the first bytes of the request."""
        facts: dict[str, Any] = {"used_bytes": self.memory.used}
        if len(arrived) >= SIZE_BYTES + HEADER_MIN_BYTES:
            _, key_and_version, _, client_id_size = REQUEST_HEAD.unpack_from(arrived)
            facts |= client_and_api(arrived[SIZE_BYTES:], key_and_version, client_id_size)
        self.warn("memory for requests is exhausted; pausing the connection", **facts)

    # -- the response -------------------------------------------------------------------------------------------------

    def wait_for(self, exchange: Exchange) -> None:
        """Handle no other request until `done`; the exchange responds later."""
        self.busy = True
        self._waiting = exchange

    def send(self, ctx: Context, route: Route, response: Any, muted_ms: int = 0) -> bool:
        """Encode and write a response. Return True if the caller must end the request; False if the connection closes,
        or if the socket is full: then the connection ends the request `muted_ms` after the response is sent."""
        try:
            parts = route.encode(response)
        except Exception as error:
            self.not_encoded(ctx, error)
            return False
        return self.send_parts(ctx, route, parts, muted_ms)

    def send_parts(self, ctx: Context, route: Route, parts: list[Part], muted_ms: int = 0) -> bool:
        """Write an encoded response; returns as `send`."""
        if not route.sends_files:
            body = b"".join(cast("list[bytes]", parts))
            self.transport.write(response_head(ctx.correlation_id, route.response_has_tags, len(body)) + body)
            return True
        try:
            if self._sender.send(ctx.correlation_id, route.response_has_tags, parts):
                return True
        except Exception as error:  # a disk error; the caller may be the purgatory, which completes other requests, too
            self.log_of(ctx).error("response cannot be sent; closing the connection", exc_info=error)
            self.abort()
            return False
        self.busy = True
        self._muted_ms = muted_ms
        return False

    def mute(self, muted_ms: int) -> None:
        """End the request in progress after `muted_ms`, although its response is already sent (KIP-219)."""
        self.busy = True
        self._broker.timers.call_later(muted_ms, self.done)

    def done(self) -> None:
        """End the request in progress, and handle the next one."""
        self.busy = False
        self._waiting = None
        if self._long is not None:
            self._long.end()
            self._long = None
        if self._draining:
            self.close()
        else:
            self.receiver.resume()

    def _sent(self) -> None:
        """End the request in progress, because the sender has sent a response that did not fit into the socket."""
        if self.closing:
            return
        muted_ms, self._muted_ms = self._muted_ms, 0
        if muted_ms:
            self.mute(muted_ms)
        else:
            self.done()

    def _truncated(self, error: OSError) -> None:
        # Only the response to a Fetch has slices of log files.
        log = self.log_of(None)
        log.error("response was cut short; closing the connection", api=ApiKey.FETCH.name, error=str(error))

    def not_encoded(self, ctx: Context, error: Exception) -> None:
        """Close the connection because a response cannot be encoded, a defect of Odradek."""
        self.log_of(ctx).error("response cannot be encoded; closing the connection", exc_info=error)
        self.close()


def _decoded(route: Route, frame: memoryview | bytearray, position: int) -> Any:
    try:
        return route.decode(frame, position)
    except DecodeError:
        return route.decode_with_trailing_bytes(frame, position)
