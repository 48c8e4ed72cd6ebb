"""Wait for a Kafka broker through a plain socket, independent of the retries of a client."""

import socket
import struct
import time
from collections.abc import Callable

_API_VERSIONS, _METADATA = 18, 3
_ALL_TOPICS_V1 = struct.pack(">i", -1)


class NotReady(Exception):
    """The broker did not respond in time, or ended."""


def wait_until_ready(host: str, port: int, *, brokers: int = 1, timeout: float, alive: Callable[[], bool]) -> None:
    """Wait until the broker responds to ApiVersions, and to Metadata with `brokers` brokers. Raises NotReady."""
    deadline = time.monotonic() + timeout
    while not _responds(host, port, brokers):
        if not alive():
            raise NotReady(f"the broker on {host}:{port} ended before it responded")
        if time.monotonic() > deadline:
            raise NotReady(f"the broker on {host}:{port} did not respond within {timeout:.0f} s")
        time.sleep(0.02)


def _responds(host: str, port: int, brokers: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            versions = _call(connection, _API_VERSIONS, 0, b"")
            if struct.unpack_from(">h", versions, 4)[0] != 0:
                return False
            metadata = _call(connection, _METADATA, 1, _ALL_TOPICS_V1)
            return bool(struct.unpack_from(">i", metadata, 4)[0] >= brokers)
    except (OSError, struct.error):
        return False


def _call(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api_key, version, 1, 5) + b"ready" + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    return _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise OSError("the broker closed the connection")
        received += piece
    return received
