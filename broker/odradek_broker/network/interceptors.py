"""Interceptors: faults and traces plug in between decoder and handler, and between handler and write.

Owns the verdicts, and the order of interceptors. Leaves the effects of a verdict to `network.faults`. Both lists are
usually empty, and an empty list costs one truth test for each request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek_broker.apis.context import Context
from odradek_wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Continue after a delay on the clock of timeouts. The connection handles no other request meanwhile."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Respond with an error of the whole request, instead of calling the handler or of writing its response."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Drop:
    """Send no response, so that the client waits until its own timeout."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection without a response."""


Verdict = Delay | Fail | Drop | Disconnect
BeforeHandle = Callable[[Context, Any], Verdict | None]
BeforeWrite = Callable[[Context, Any, Any], Verdict | None]


class Interceptors:
    """The interceptors of a broker. The first verdict that is not None applies. The lists may change at any time."""

    __slots__ = ("before_handle", "before_write")

    def __init__(self) -> None:
        self.before_handle: list[BeforeHandle] = []
        self.before_write: list[BeforeWrite] = []

    def on_request(self, ctx: Context, request: Any) -> Verdict | None:
        """Return the verdict on a request, before its handler."""
        for interceptor in self.before_handle:
            verdict = interceptor(ctx, request)
            if verdict is not None:
                return verdict
        return None

    def on_response(self, ctx: Context, request: Any, response: Any) -> Verdict | None:
        """Return the verdict on a request, after its handler."""
        for interceptor in self.before_write:
            verdict = interceptor(ctx, request, response)
            if verdict is not None:
                return verdict
        return None
