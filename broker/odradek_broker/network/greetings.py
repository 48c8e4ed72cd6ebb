"""The first bytes of clients that speak another protocol than the listener, so that the log can name it.

Owns the recognition of TLS and HTTP. Leaves closing the connection to `connection`.
"""

from __future__ import annotations

from typing import NamedTuple

_TLS_HANDSHAKE = b"\x16\x03"
_HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ")
"""The first four bytes of HTTP's methods, and of HTTP/2."""


class Greeting(NamedTuple):
    """What a client seems to speak, and the setting that is probably wrong."""

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
    """The protocol that these first bytes of a connection belong to, four at least; None if they say nothing."""
    if first.startswith(_TLS_HANDSHAKE):
        return TLS
    return HTTP if first[:4] in _HTTP else None
