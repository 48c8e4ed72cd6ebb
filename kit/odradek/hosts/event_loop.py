"""The event loop of a broker, and the log event for connections that wait because no file descriptor is left."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek_broker.logger import Logger

_ACCEPT_FAILED = "socket.accept() out of system resource"
"""The message of asyncio's error, which it reports to the handler up to a thousand times a second."""
_ACCEPT_RETRY_FAILED = "._start_serving("
_LOG_INTERVAL_S = 60


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, of uvloop if it is installed; the process's policy and current loop stay as they are."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()


def log_refused_accepts(loop: asyncio.AbstractEventLoop, log: Logger) -> None:
    """Log, at most once a minute, that connections wait because no file descriptor is left; asyncio accepts them later.

    uvloop closes such connections and reports nothing.
    """
    logged_at = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_at
        if context["message"] != _ACCEPT_FAILED:
            # asyncio tries to accept a second later, and fails if the listener is closed by then, which is no error.
            closed = _ACCEPT_RETRY_FAILED in context["message"] and isinstance(context.get("exception"), ValueError)
            if not closed:
                loop.default_exception_handler(context)
        elif loop.time() - logged_at >= _LOG_INTERVAL_S:
            logged_at = loop.time()
            log.warning(
                "connections wait for a file descriptor", error=str(context["exception"]), advice="raise ulimit -n"
            )

    loop.set_exception_handler(handle)
