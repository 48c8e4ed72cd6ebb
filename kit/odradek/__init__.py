"""Odradek for its users: a Kafka broker inside your process, on your command line and in your tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.client import ClientError, KafkaError
    from odradek.cluster import Cluster
    from odradek.settings import SettingsError

__all__ = ["ClientError", "Cluster", "KafkaError", "SettingsError"]

_HOMES = {
    "Cluster": "odradek.cluster",
    "ClientError": "odradek.client",
    "KafkaError": "odradek.client",
    "SettingsError": "odradek.settings",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are used: the command line and the pytest plugin must start without a broker."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
