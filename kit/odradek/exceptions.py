"""The exceptions of the public API; `odradek` exports each of them.

Invalid arguments raise ValueError, a port in use or a full disk raises OSError, and a wait that takes too long raises
TimeoutError.
"""

from __future__ import annotations

from odradek_wire.errors import ErrorCode


class ClientError(Exception):
    """The broker cannot be reached, or does not respond as Kafka does; the message is one line."""


class KafkaError(ClientError):
    """The broker returned an error code, which is in `code`."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        try:
            self.code = ErrorCode(code)
            name = self.code.name
        except ValueError:
            self.code, name = ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}"
        super().__init__(f"{subject}: {message or name}")


class SettingsError(ValueError):
    """A setting that Kafka does not have, or a value that it refuses; the message is one line."""


class DataDirectoryError(ValueError):
    """A data directory that cannot be used: it is locked, or it holds something other than this cluster's data."""


class NotRunningError(RuntimeError):
    """The cluster, or the broker that the call names, is not running."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__("the cluster is not running" if broker is None else f"broker {broker} is not running")


class AlreadyRunningError(RuntimeError):
    """The cluster, or the broker that the call names, is already running."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__("the cluster is already running" if broker is None else f"broker {broker} is already running")


class BrokerProcessError(RuntimeError):
    """The child process of `Cluster(process=True)` has exited, or failed in a way that has no exception of its own."""
