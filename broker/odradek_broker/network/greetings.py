"""The first bytes of clients that speak another protocol than Kafka's, so that the log can name it.

Owns the recognition of TLS and HTTP. Leaves closing the connection to `connection`.
"""

from __future__ import annotations

from typing import NamedTuple

_TLS_HANDSHAKE = b"\x16\x03"
_HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ")
"""The first four bytes of HTTP's methods, and of HTTP/2."""


class Greeting(NamedTuple):
    """The log event for a client's protocol, and a hint at the setting that is probably wrong."""

    event: str
    hint: str


TLS = Greeting(
    "TLS handshake on a listener without TLS",
    "set security.protocol=PLAINTEXT at the client, or use the port of a listener with TLS",
)
HTTP = Greeting(
    "HTTP request on a listener for Kafka's protocol",
    "Kafka's clients need this port in bootstrap.servers; HTTP is on the port of metrics.http.port, if that is set",
)


def recognize(first: bytes) -> Greeting | None:
    """Return the protocol that a connection's first bytes, at least four, belong to; None for any other bytes."""
    if first.startswith(_TLS_HANDSHAKE):
        return TLS
    return HTTP if first[:4] in _HTTP else None
