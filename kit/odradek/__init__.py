"""A Kafka broker for tests, for CI and for the command line.

Exports the public API: `Cluster`, its `Faults`, the pytest fixtures' types and every exception that they raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.cluster import Cluster
    from odradek.exceptions import (
        AlreadyRunningError,
        BrokerProcessError,
        ClientError,
        DataDirectoryError,
        KafkaError,
        NotRunningError,
        SettingsError,
    )
    from odradek.faults import Faults
    from odradek.pytest_plugin import ClusterFactory
    from odradek_wire.errors import ErrorCode

__all__ = [
    "AlreadyRunningError",
    "BrokerProcessError",
    "ClientError",
    "Cluster",
    "ClusterFactory",
    "DataDirectoryError",
    "ErrorCode",
    "Faults",
    "KafkaError",
    "NotRunningError",
    "SettingsError",
]

_MODULES = {
    "Cluster": "odradek.cluster",
    "ClusterFactory": "odradek.pytest_plugin",
    "ErrorCode": "odradek_wire.errors",
    "Faults": "odradek.faults",
}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used: importing `odradek` must not import the broker."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "odradek.exceptions")), name)
