"""The file descriptors of the process: connections may take a part of them, the rest is for files.

A broker that cannot open a file takes its log directory offline, so that a flood of connections would end it.
"""

from __future__ import annotations

import asyncio

_KEPT_MAX = 64


def descriptor_limit() -> int | None:
    """The soft limit of the process (`ulimit -n`); None without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class DescriptorBound:
    """The bound for connections: a quarter of the descriptors, at most 64, is kept for files."""

    __slots__ = ("_end", "limit")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._end = None if limit is None else limit - min(limit // 4, _KEPT_MAX)

    def is_exceeded_by(self, transport: asyncio.Transport) -> bool:
        """Whether the connection's descriptor is among those that are kept. The operating system gives the lowest free
        number, so that all below it are in use."""
        plain = transport.get_extra_info("socket")
        return self._end is not None and plain is not None and plain.fileno() >= self._end
