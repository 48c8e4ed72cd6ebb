"""The two points where faults and traces plug in: between decode and handler, between handler and write.

Owns the verdicts and the order of interceptors. Leaves carrying a verdict out to `network.faults`. Both lists are empty
in normal work, and an empty list costs one truth test per request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek_broker.apis.context import Context
from odradek_wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait on the clock of timeouts, then go on. The connection is not read meanwhile, as with a slow broker."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error for the whole request; the handler does not run (before) or has run already (after)."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Drop:
    """Never answer; the client runs into its own timeout."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection without an answer."""


Verdict = Delay | Fail | Drop | Disconnect
BeforeHandle = Callable[[Context, Any], Verdict | None]
BeforeWrite = Callable[[Context, Any, Any], Verdict | None]


class Interceptors:
    """The first verdict that is not None counts. Mutate the lists freely; they are read on each request."""

    __slots__ = ("before_handle", "before_write")

    def __init__(self) -> None:
        self.before_handle: list[BeforeHandle] = []
        self.before_write: list[BeforeWrite] = []

    def on_request(self, ctx: Context, request: Any) -> Verdict | None:
        for interceptor in self.before_handle:
            verdict = interceptor(ctx, request)
            if verdict is not None:
                return verdict
        return None

    def on_response(self, ctx: Context, request: Any, response: Any) -> Verdict | None:
        for interceptor in self.before_write:
            verdict = interceptor(ctx, request, response)
            if verdict is not None:
                return verdict
        return None
