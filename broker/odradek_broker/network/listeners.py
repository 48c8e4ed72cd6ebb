"""Listeners: the addresses that a broker binds, and those that it advertises to clients.

Owns parsing `listeners`, `advertised.listeners` and `listener.security.protocol.map`. Leaves sockets to `server`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from odradek_broker.config import BrokerConfig
from odradek_broker.security.authenticator import CHANNEL_BUILDERS

ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[^:/]*):(?P<port>-?\d+)$")


@dataclass(frozen=True, slots=True)
class ListenerEntry:
    """An entry of `listeners` or `advertised.listeners`: NAME://host:port. An empty host means every interface."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of this broker. A `port` or `advertised_port` of 0 stays 0 until the socket is bound."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    def bound(self, port: int) -> Listener:
        """Return this listener with the port that its socket is bound to."""
        return replace(self, port=port, advertised_port=self.advertised_port or port)


class ListenerError(ValueError):
    """Listeners that the broker cannot serve; the message names the setting and the entry."""


def _parse_entry(setting: str, text: str) -> ListenerEntry:
    match = ENTRY.match(text)
    if match is None:
        raise ListenerError(f"{setting}: cannot read {text!r}, expected NAME://host:port")
    host = match["host"].strip("[]")
    port = int(match["port"])
    if not 0 <= port <= 65535:
        raise ListenerError(f"{setting}: port {port} of {text!r} is outside 0..65535")
    return ListenerEntry(match["name"].upper(), host, port)


def parse_listeners(
    config: BrokerConfig, hostname: str, supported_protocols: Collection[str] = CHANNEL_BUILDERS
) -> list[Listener]:
    """Return the entries of `listeners` in order, without the listeners of controllers. Raises ListenerError.

    As in Kafka, a listener on every interface advertises `hostname` by default. An advertised port of 0 means the bound
    port, so that port 0 works in tests."""
    protocols = _protocol_map(config.text("listener.security.protocol.map"))
    controllers = {name.upper() for name in config.words("controller.listener.names")}
    all_advertised = {
        entry.name: entry
        for entry in (_parse_entry("advertised.listeners", text) for text in config.words("advertised.listeners"))
    }
    listeners: list[Listener] = []
    for text in config.words("listeners"):
        entry = _parse_entry("listeners", text)
        if entry.name in controllers:
            continue  # no client connects to the controller, which is in this process
        protocol = protocols.get(entry.name)
        if protocol is None:
            raise ListenerError(
                f"listener.security.protocol.map: add the security protocol of listener {entry.name},"
                f" such as {entry.name}:PLAINTEXT"
            )
        if protocol not in supported_protocols:
            supported = ", ".join(sorted(supported_protocols))
            raise ListenerError(
                f"listener.security.protocol.map: listener {entry.name} must have one of the protocols {supported},"
                f" got {protocol}"
            )
        advertised = all_advertised.pop(entry.name, None)
        if advertised is None:
            everywhere = entry.host in ("", "0.0.0.0", "::")
            advertised = ListenerEntry(entry.name, hostname if everywhere else entry.host, entry.port)
        if advertised.host in ("", "0.0.0.0"):
            raise ListenerError(
                f"advertised.listeners: set a host that clients can reach for listener {entry.name},"
                f" got {advertised.host!r}"
            )
        listeners.append(Listener(entry.name, protocol, entry.host, entry.port, advertised.host, advertised.port))
    text = config.text("listeners")
    if all_advertised:
        names = ", ".join(sorted(all_advertised))
        raise ListenerError(f"advertised.listeners: {names} is not in listeners, got {text!r}")
    if not listeners:
        raise ListenerError(f"listeners: add a listener for clients beside those of controllers, got {text!r}")
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ListenerError(f"listeners: each listener needs a name of its own, got {text!r}")
    return listeners


def _protocol_map(text: str) -> Mapping[str, str]:
    pairs = (part.split(":", 1) for part in text.split(",") if ":" in part)
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}
