"""Authentication: the principal of a connection, and the parts that a listener's security protocol plugs in.

Owns the protocols that a security protocol implements, and their implementation for PLAINTEXT. Leaves the requests
that authentication consists of (SaslHandshake, SaslAuthenticate) to their API modules, which reach the authenticator
through their context's connection, and sockets to `network`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from odradek_broker.config import BrokerConfig
from odradek_controller.principal import ANONYMOUS, Principal


class Authenticator(Protocol):
    """The authentication of one connection (Kafka's Authenticator)."""

    @property
    def principal(self) -> Principal | None:
        """The authenticated principal; None until authentication has completed.

        The connection reads it when it opens, before each request until it is set, and at each later call of
        `Connection.check_authentication`, as after the expiry of a session (KIP-368)."""
        ...

    def allows_before_completion(self, api_key: int) -> bool:
        """Return whether a request is part of authentication. The connection closes on any other request that comes
        before authentication has completed."""
        ...


class ChannelBuilder(Protocol):
    """The part that a security protocol adds to a listener (Kafka's ChannelBuilder)."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context of the listener's socket; None for a listener without TLS."""
        ...

    def authenticator(self, transport: asyncio.BaseTransport) -> Authenticator:
        """Return the authenticator of a new connection. With TLS, the handshake is complete, and the transport
        has the client's certificate."""
        ...


NewChannelBuilder = Callable[[str, BrokerConfig], ChannelBuilder]
"""Makes the channel builder of one listener, from the listener's name and the broker's configuration. Raises
ValueError for settings that it cannot serve."""


class AnonymousAuthenticator:
    """The authenticator of a listener without authentication: every client is `User:ANONYMOUS`."""

    __slots__ = ()

    @property
    def principal(self) -> Principal:
        return ANONYMOUS

    def allows_before_completion(self, api_key: int) -> bool:
        return True


class PlaintextChannelBuilder:
    """PLAINTEXT: no TLS, no authentication. One authenticator without state serves all connections."""

    __slots__ = ("_authenticator",)

    def __init__(self, listener: str, config: BrokerConfig) -> None:
        self._authenticator = AnonymousAuthenticator()

    @property
    def ssl_context(self) -> None:
        return None

    def authenticator(self, transport: asyncio.BaseTransport) -> AnonymousAuthenticator:
        return self._authenticator


CHANNEL_BUILDERS: dict[str, NewChannelBuilder] = {"PLAINTEXT": PlaintextChannelBuilder}
"""The security protocols that a listener may have (`listener.security.protocol.map`)."""
