"""Inside a container: where the broker listens when no variable says so, and where its health check finds it.

Leaves reading `KAFKA_*` variables to `odradek.settings`, and listeners themselves to the broker.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from odradek.client.client import format_address
from odradek.settings import gather
from odradek_broker.config import BrokerConfig
from odradek_broker.network.listeners import parse_listeners

_HOST_PORT = 9092
_NETWORK_PORT = 19092
_EVERYWHERE = ("", "0.0.0.0", "::")


def default_listeners(values: Mapping[str, str]) -> dict[str, str]:
    """9092 for clients on the host, where the engine publishes it, and 19092 for the containers of the network.

    `KAFKA_ADVERTISED_LISTENERS` without `KAFKA_LISTENERS` means one listener, as in the apache/kafka image.
    """
    if "advertised.listeners" in values:
        return {"listeners": f"PLAINTEXT://:{_HOST_PORT}"}
    inside = f"{socket.gethostname()}:{_NETWORK_PORT}"
    return {
        "listeners": f"PLAINTEXT_HOST://:{_HOST_PORT},PLAINTEXT://:{_NETWORK_PORT}",
        "listener.security.protocol.map": "PLAINTEXT_HOST:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT_HOST://localhost:{_HOST_PORT},PLAINTEXT://{inside}",
    }


def own_address(environment: Mapping[str, str]) -> str:
    """The address at which a process of the same container reaches the broker that has these variables.

    `SettingsError` or `ValueError` for variables with which no broker can be running."""
    values = dict(gather(environment=environment).values)
    if "listeners" not in values:
        values |= default_listeners(values)
    listener = parse_listeners(BrokerConfig(values), "localhost")[0]
    return format_address("localhost" if listener.host in _EVERYWHERE else listener.host, listener.port)
