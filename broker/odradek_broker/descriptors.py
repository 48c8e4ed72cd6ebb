"""The file descriptors of the process: connections may take a part of them, the rest is for files.

Without this bound a flood of connections could take all log directories offline, because a broker that cannot open a
file takes the directory offline.
"""

from __future__ import annotations

import asyncio

_KEPT_MAX = 64


def descriptor_limit() -> int | None:
    """Return the soft limit of the process (`ulimit -n`); None without one."""
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
        """Return whether the connection's descriptor is one of those kept for files. The operating system gives the
        lowest free number, so that all below it are in use."""
        plain = transport.get_extra_info("socket")
        return self._end is not None and plain is not None and plain.fileno() >= self._end
