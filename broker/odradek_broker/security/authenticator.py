"""Authentication: the principal of a connection, and the seam by which a security protocol plugs into a listener.

Owns the interfaces that a security protocol implements (`ChannelBuilder`, `Authenticator`), and their implementation
for PLAINTEXT. Leaves sockets to `network`, and the requests of authentication (SaslHandshake, SaslAuthenticate) to
their API modules, which reach the authenticator through the connection of their context.
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

        The connection reads it when it opens, before each request until there is one, and later in
        `Connection.check_authentication`, as after the expiry of a session (KIP-368)."""
        ...

    def allows_before_completion(self, api_key: int) -> bool:
        """Return whether the connection serves requests of this API before authentication has completed. Any other
        request closes it."""
        ...


class ChannelBuilder(Protocol):
    """The security protocol of one listener (Kafka's ChannelBuilder)."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context of the listener's socket; None for a listener without TLS."""
        ...

    def authenticator(self, transport: asyncio.BaseTransport) -> Authenticator:
        """Return the authenticator of a new connection. With TLS the handshake is complete, and the transport has the
        client's certificate."""
        ...


NewChannelBuilder = Callable[[str, BrokerConfig], ChannelBuilder]
"""Makes the channel builder of a listener, from the listener's name and the broker's configuration. Raises ValueError
for invalid settings."""


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
