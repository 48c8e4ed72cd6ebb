"""What the server must know about one API: its messages, its handler, what it leaves out.

Every module under `apis/` ends with one `API = Api(...)`; `apis/table.py` lists them, with their versions. Dispatch,
ApiVersions and the compatibility page read these objects and nothing else.
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
    None means that the client expects no answer (Produce with acks=0). The request's `records` are views into the
    connection's buffer and stay valid until the response is handed over.
    """

    request: type[Request]
    response: type[Response]
    handle: Callable[[Context, Any], Response | Awaitable[Response] | Sliced | None]
    notes: str = ""
    """What it leaves out, for the compatibility page."""
    failed: Callable[[Context, Any, ErrorCode], Response | None] | None = None
    """The answer for an error of the whole request (unexpected exception, injected fault). None: the response's
    top-level `error_code`; a response that has none closes the connection."""
    slices: Divider | None = None
    """How requests with many elements are divided. None: they are handled in one go, and may have fewer elements."""
    elements_part: int | None = None
    """Requests may have this part of `odradek.request.elements.max`. None: 1 with `slices`, a twentieth without."""
    fast_path: Callable[[int], Callable[..., bytes | None] | None] | None = None
    """For the hot path: `fast_path(version)` makes a function of broker, connection, frame and position of the body. It
    returns the body of the response to the usual request, or None to have the request handled in the general way. The
    connection calls it only after authentication, without interceptors and without quotas."""
