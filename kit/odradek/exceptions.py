"""The exceptions of the public API; `odradek` exports each of them.

Invalid arguments raise ValueError, a port in use or a full disk raises OSError, and a wait that takes too long raises
TimeoutError.
"""

from __future__ import annotations

from odradek_wire.errors import ErrorCode

_EXPLANATIONS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist",
    ErrorCode.GROUP_ID_NOT_FOUND: "it does not exist",
    ErrorCode.NON_EMPTY_GROUP: "it has members",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than message.max.bytes or max.message.bytes allows",
}
"""For common error codes that Kafka returns without a message, or with one that only an expert understands."""


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
        explanation = _EXPLANATIONS.get(self.code)
        text = message or name if explanation is None else f"{explanation} ({name})"
        super().__init__(f"{subject}: {text}")


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
    """The child process of `Cluster(process=True)` has exited, or failed with another error than those above."""
