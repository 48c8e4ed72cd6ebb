"""The default listeners of a broker in a container, and the address for its health check.

Leaves `KAFKA_*` variables to `odradek.settings`, and parsing listeners to the broker.
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
    """Return listeners on port 9092, for clients on the host, and on 19092, for other containers of the network.

    With `KAFKA_ADVERTISED_LISTENERS` but without `KAFKA_LISTENERS` there is one listener, as in the apache/kafka image.
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
    """Return the address at which a process of the same container reaches the broker that these variables configure.

    Raises SettingsError and ValueError for variables with which no broker can start.
    """
    values = dict(gather(environment=environment).values)
    if "listeners" not in values:
        values |= default_listeners(values)
    listener = parse_listeners(BrokerConfig(values), "localhost")[0]
    return format_address("localhost" if listener.host in _EVERYWHERE else listener.host, listener.port)
