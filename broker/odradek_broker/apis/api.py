"""The description of one API: its messages, its handler, its limits.

The module of each API ends with `API = Api(...)`. Leaves the versions to `apis.table`, and dispatch to the routes of
the network. The compatibility page quotes the differences in a module's docstring.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Divider, Sliced
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Api(Generic[Request, Response]):
    """One API key.

    `handle(ctx, request)` returns the response, or an awaitable of it (a coroutine, a `Deferred`) when it has to wait;
    None means that the client expects no response (Produce with acks=0). The request's `records` are views into the
    connection's buffer, and valid until the handler returns.
    """

    request: type[Request]
    response: type[Response]
    handle: Callable[[Context, Any], Response | Awaitable[Response] | Sliced | None]
    error_response: Callable[[Context, Any, ErrorCode], Response | None] | None = None
    """Makes the response for an error of the whole request (an unexpected exception, a fault). None: the response's
    top-level `error_code` has the error; without such a field the connection closes."""
    slices: Divider | None = None
    """Divides requests with many elements. None: such requests are not divided, and may have fewer elements."""
    elements_divisor: int | None = None
    """Divides `odradek.request.elements.max` for this API. None: by 1 with `slices`, by 20 without."""
    fast_path: Callable[[int], Callable[..., bytes | None] | None] | None = None
    """For the hot path: `fast_path(version)` returns None, or a function of broker, connection, frame and position of
    the body. That function returns the body of the response to the usual request, or None for a request that needs the
    general path. The connection calls it only after authentication, without interceptors and without quotas."""
