"""The optional HTTP port (`metrics.http.port`): `/metrics` for Prometheus, `/ready` for readiness probes.

Owns the part of HTTP that these two need: one GET request for each connection. Leaves the figures to `metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

REQUEST_MAX_BYTES = 8192
REQUEST_TIMEOUT_S = 5
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class HttpPort:
    """The HTTP server. `ready` returns whether the broker is ready, `metrics` the text of the metrics."""

    def __init__(self, ready: Callable[[], bool], metrics: Callable[[], str]) -> None:
        self._ready = ready
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. With port 0 the operating system chooses a free port, which is then in `self.port`."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_MAX_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, body = self._respond(head)
            data = body.encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(data)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client is too slow, or speaks another protocol
        finally:
            writer.close()

    def _respond(self, head: bytes) -> tuple[str, str]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return "405 Method Not Allowed", "only GET\n"
        if path == b"/ready":
            return ("200 OK", "ready\n") if self._ready() else ("503 Service Unavailable", "not ready\n")
        if path == b"/metrics":
            return "200 OK", self._metrics()
        return "404 Not Found", "/metrics or /ready\n"
