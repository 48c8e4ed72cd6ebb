"""The moment of a broker's first or complete Metadata response, polled every two milliseconds."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse

_PAUSE_S = 0.002
_VERSION = 4


def framed(request: Message, version: int) -> bytes:
    """Return the request's frame with its length."""
    frame = encode_request(request, version, 1, "bench")
    return struct.pack(">i", len(frame)) + frame


_ALL_TOPICS = framed(MetadataRequest(None, allow_auto_topic_creation=False), _VERSION)


def wait_for_metadata(
    address: tuple[str, int],
    *,
    topics: int = 0,
    brokers: int = 1,
    timeout_s: float = 120.0,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until Metadata names `brokers` brokers, and `topics` topics with a leader for every partition."""
    deadline = time.monotonic() + timeout_s
    while not _complete(address, topics, brokers):
        if not alive() or time.monotonic() > deadline:
            raise TimeoutError(f"{address[0]}:{address[1]}: no Metadata with {brokers} brokers and {topics} topics")
        time.sleep(_PAUSE_S)


def _complete(address: tuple[str, int], topics: int, brokers: int) -> bool:
    try:
        _, known = decode_response(MetadataResponse, _VERSION, ask(address, _ALL_TOPICS))
    except OSError:
        return False
    led = [
        all(partition.leader_id >= 0 for partition in topic.partitions)
        for topic in known.topics
        if not topic.is_internal
    ]
    return len(known.brokers) >= brokers and len(led) >= topics and all(led)


def ask(address: tuple[str, int], frame: bytes) -> bytes:
    """Send one request on a new connection. Return the response without its length."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(frame)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(min(count - len(received), 1 << 20))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return bytes(received)
