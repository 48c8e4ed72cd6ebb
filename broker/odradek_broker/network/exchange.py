"""A request that waits, fails or is throttled, that is divided into slices, or that an interceptor changes.

Owns the path from the handler's result to the response of such a request. Leaves all other requests to `connection`,
and the effect of an interceptor's verdict to `faults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS, Sliced, handle_in_slices
from odradek_broker.deferred import Deferred
from odradek_broker.network import faults
from odradek_broker.network.routes import Route
from odradek_broker.security.quotas import HandledRequest
from odradek_controller.store import NotControllerError, UnsupportedRecordError
from odradek_log.log_segment import FileSlice
from odradek_wire.codec import Part
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Struct

if TYPE_CHECKING:
    from odradek_broker.network.connection import Connection


class Exchange:
    """A request of `size` bytes. If it `is_long`, it is handled in slices if its API has a divider, and its response is
    encoded on a thread if that has many elements."""

    __slots__ = ("_awaited", "connection", "ctx", "is_long", "request", "route", "size")

    def __init__(
        self, connection: Connection, ctx: Context, route: Route, request: Any, size: int, *, is_long: bool = False
    ) -> None:
        self.connection = connection
        self.ctx = ctx
        self.route = route
        self.request = request
        self.size = size
        self.is_long = is_long
        self._awaited: Deferred[Any] | asyncio.Task[Any] | None = None

    def handle(self) -> None:
        """Call the handler; if the request is long, for each of its slices."""
        if self.connection.closing:
            return None
        slices = self.route.api.slices
        if self.is_long and slices is not None:
            return self.complete_with(handle_in_slices(self.route.handle, self.ctx, self.request, slices))
        try:
            response = self.route.handle(self.ctx, self.request)
        except Exception as error:
            return self.fail(error)
        return self.complete_with(response)

    def complete_with(self, response: Any) -> None:
        """Respond with the result of the handler: the response, an awaitable of it, or None for no response."""
        if response is None or response.__class__ is self.route.response_class:
            return self.respond(response)
        self.connection.wait_for(self)
        if isinstance(response, Sliced):
            self.is_long = True
            response = response.response
        if isinstance(response, Deferred):
            self._awaited = response
            response.when_done(self._deferred_done)
        else:
            task = self.connection.server.loop.create_task(cast("Coroutine[Any, Any, Any]", response))
            self._awaited = task
            task.add_done_callback(self._task_done)
        return None

    def cancel(self) -> None:
        """Stop waiting, because the client has disconnected."""
        if self._awaited is not None:
            self._awaited.cancel()

    def respond(self, response: Any) -> None:
        """Intercept, throttle, encode and write the `response`, which is None if the client expects none (acks=0)."""
        if self.connection.closing:
            return None
        if response is None:
            return self._sent(self._throttle_ms(None))
        interceptors = self.connection.interceptors
        if interceptors.before_write:
            verdict = interceptors.on_response(self.ctx, self.request, response)
            if verdict is not None:
                return faults.apply_before_write(self, response, verdict)
        return self.write(response)

    def write(self, response: Any) -> None:
        """Throttle, encode and write the response, then let the connection handle the next request."""
        connection = self.connection
        if connection.closing:
            return
        muted_ms = self._throttle_ms(response)
        if muted_ms and self.route.has_throttle_time:
            response.throttle_time_ms = muted_ms
        if self.is_long and _has_many_elements(response):
            connection.wait_for(self)
            self._awaited = connection.server.loop.create_task(self._encode_and_send(response, muted_ms))
        elif connection.send(self.ctx, self.route, response, muted_ms):
            self._sent(muted_ms)

    def _throttle_ms(self, response: Any) -> int:
        ctx, quotas = self.ctx, self.ctx.broker.quotas
        if quotas.unlimited:
            return 0
        return quotas.throttle_ms(HandledRequest(ctx.api_key, ctx.principal, ctx.client_id, self.size, response))

    async def _encode_and_send(self, response: Any, muted_ms: int) -> None:
        connection, encode = self.connection, self.route.encode
        try:
            parts = await connection.server.long_requests.run(lambda: _joined(encode(response)))
        except Exception as error:
            connection.not_encoded(self.ctx, error)
            return
        if not connection.closing and connection.send_parts(self.ctx, self.route, parts, muted_ms):
            self._sent(muted_ms)

    def _sent(self, muted_ms: int) -> None:
        """Let the connection handle the next request, after `muted_ms`."""
        if muted_ms:
            self.connection.mute(muted_ms)
        else:
            self.connection.done()

    def fail(self, error: BaseException) -> None:
        """Respond to an exception of the handler. The exceptions of the controller channel have error codes; any other
        exception is logged, and the client receives UNKNOWN_SERVER_ERROR."""
        if isinstance(error, NotControllerError):
            self.respond_with(ErrorCode.NOT_CONTROLLER)
        elif isinstance(error, UnsupportedRecordError):
            self.respond_with(ErrorCode.UNSUPPORTED_VERSION)
        else:
            self.connection.log_of(self.ctx).error("handler failed", exc_info=error)
            self.respond_with(ErrorCode.UNKNOWN_SERVER_ERROR)

    def respond_with(self, error: ErrorCode) -> None:
        """Respond with an error of the whole request; close the connection if the response has no field for it."""
        response = self.route.failure(self.ctx, self.request, error)
        if response is None:
            self.connection.close()
        else:
            self.respond(response)

    def _deferred_done(self, deferred: Deferred[Any]) -> None:
        self._awaited = None
        if deferred.error is not None:
            self.fail(deferred.error)
        else:
            self.respond(deferred.value)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._awaited = None
        if task.cancelled():
            # If the handler cancelled itself, without a disconnection, later requests must not wait for it forever.
            self.connection.close()
            return
        error = task.exception()
        if error is not None:
            self.fail(error)
        else:
            self.respond(task.result())


def _joined(parts: list[Part]) -> list[Part]:
    """Join the consecutive bytes of a response, so that the caller sends few parts."""
    joined: list[Part] = []
    for in_file, group in groupby(parts, lambda part: part.__class__ is FileSlice):
        if in_file:
            joined += group
        else:
            joined.append(b"".join(cast("Iterator[bytes]", group)))
    return joined


def _has_many_elements(response: Any) -> bool:
    """Return whether the arrays of the response have more than `ELEMENTS` entries in all."""
    left = ELEMENTS
    structs = [response]
    while structs:
        struct = structs.pop()
        for name in struct.__slots__:
            entries = getattr(struct, name, None)
            if isinstance(entries, list) and entries:
                left -= len(entries)
                if left < 0:
                    return True
                if isinstance(entries[0], Struct):
                    structs.extend(entries)
    return False
