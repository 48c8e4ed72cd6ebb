"""Greetings: the first bytes that a client of another protocol sends, by which the log names that protocol.

Owns the recognition of TLS and HTTP. Leaves closing the connection to `connection`.
"""

from __future__ import annotations

from typing import NamedTuple

_TLS_HANDSHAKE = b"\x16\x03"
_HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ")
"""The first four bytes of a request in HTTP/1, for each method, and in HTTP/2."""


class Greeting(NamedTuple):
    """The log event for a protocol, and a hint at the setting that is probably wrong."""

    event: str
    hint: str


TLS = Greeting(
    "TLS handshake on a listener without TLS; closing the connection",
    "set security.protocol=PLAINTEXT at the client, or use the port of a listener with TLS",
)
HTTP = Greeting(
    "HTTP request on a listener for the Kafka protocol; closing the connection",
    "use this port in bootstrap.servers of Kafka clients only; metrics.http.port sets the port for HTTP",
)


def recognize(first: bytes) -> Greeting | None:
    """Return the greeting that begins with these bytes, of which there are at least four; None for any other bytes."""
    if first.startswith(_TLS_HANDSHAKE):
        return TLS
    return HTTP if first[:4] in _HTTP else None
