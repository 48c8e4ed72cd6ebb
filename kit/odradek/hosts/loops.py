"""The event loop of a broker: uvloop where it is installed, and never the process's policy."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of its own; the process's policy and current loop stay as they are."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()
